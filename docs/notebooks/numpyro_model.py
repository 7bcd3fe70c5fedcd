# %% [markdown]
# # A NumPyro model with a permutation in it
#
# Seven landmarks of a map are found again in a picture that is turned, shifted and blurred by
# unknown amounts. To know who is who you need the turn, and to know the turn you need who is
# who. Write both into one NumPyro model. `pv.PermutationGibbs` moves the permutation, NUTS the
# rest.

# %%
import warnings

# NumPyro's progress bars, which are off below, ask for ipywidgets when they are imported.
warnings.filterwarnings("ignore", "IProgress not found")

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

import permvi as pv

rng = np.random.default_rng(3)
landmarks = jnp.asarray(rng.normal(size=(7, 2)))
truth = rng.permutation(7)


def rotation(angle):
    """Return the matrix of a turn."""
    return jnp.array([[jnp.cos(angle), -jnp.sin(angle)], [jnp.sin(angle), jnp.cos(angle)]])


picture = landmarks[truth] @ rotation(0.4).T + jnp.array([0.3, -0.2])
picture = picture + 0.4 * rng.normal(size=(7, 2))

# %% [markdown]
# ## The model
#
# `X[i]` is the landmark of point i. Everything else is an ordinary site.


# %%
def model(landmarks, picture):
    """Landmarks of a map, seen in another frame and in another order."""
    angle = numpyro.sample("angle", dist.Normal(0.0, 0.5))
    shift = numpyro.sample("shift", dist.Normal(0.0, 0.5).expand([2]).to_event(1))
    noise = numpyro.sample("noise", dist.HalfNormal(0.5))
    X = numpyro.sample("X", pv.distributions.Permutation(len(landmarks)))
    seen = landmarks[X] @ rotation(angle).T + shift
    numpyro.sample("seen", dist.Normal(seen, noise).to_event(2), obs=picture)


kernel = pv.PermutationGibbs(NUTS(model))
mcmc = MCMC(
    kernel, num_warmup=500, num_samples=1000, num_chains=4, chain_method="vectorized",
    progress_bar=False,
)  # fmt: skip
mcmc.run(jax.random.key(0), landmarks, picture)
posterior = kernel.posterior(mcmc, "X")
posterior

# %% [markdown]
# `kernel.summary` has R-hat and effective sample sizes of all sites, the permutation among them.

# %%
for name, site in kernel.summary(mcmc).items():
    print(f"{name:6} R-hat {float(np.max(site.r_hat)):.3f}")

# %% [markdown]
# ## What the uncertainty is good for
#
# If you first settle who is who and then fit the turn, you pretend to know the matching. The
# joint posterior does not. Compare the two answers about the angle: one fit with the most
# probable matching held fixed, and the joint one.


# %%
def settled(landmarks, picture, X):
    """The same model with the permutation known."""
    angle = numpyro.sample("angle", dist.Normal(0.0, 0.5))
    shift = numpyro.sample("shift", dist.Normal(0.0, 0.5).expand([2]).to_event(1))
    noise = numpyro.sample("noise", dist.HalfNormal(0.5))
    seen = landmarks[X] @ rotation(angle).T + shift
    numpyro.sample("seen", dist.Normal(seen, noise).to_event(2), obs=picture)


fixed = MCMC(
    NUTS(settled), num_warmup=500, num_samples=1000, num_chains=4, chain_method="vectorized",
    progress_bar=False,
)  # fmt: skip
fixed.run(jax.random.key(1), landmarks, picture, jnp.asarray(posterior.mode))

figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
pv.plots.marginals(posterior, axes[0])
for name, run in (("joint", mcmc), ("best matching taken for granted", fixed)):
    axes[1].hist(run.get_samples()["angle"], 60, density=True, alpha=0.5, label=name)
axes[1].axvline(0.4, color="black", linewidth=1)
axes[1].set(xlabel="angle; the truth is 0.4", yticks=[])
axes[1].legend(frameon=False)
plt.show()

# %%
for name, run in (("joint", mcmc), ("fixed", fixed)):
    angle = np.asarray(run.get_samples()["angle"])
    print(f"{name}: angle {angle.mean():.2f} ± {angle.std():.2f}")
print(f"pairs of the mode that are right: {(posterior.mode == truth).sum()} of 7")

# %% [markdown]
# [Inside NumPyro](../numpyro.md) has the details: plates of permutations, masks, known pairs,
# tempering for posteriors with far modes, and a guide for variational inference.
