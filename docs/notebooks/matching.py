# %% [markdown]
# # Matching: whose seedling is it?
#
# Twelve seedlings were measured in spring, each with its name on a stick. In autumn the sticks
# have faded. You measure the twelve plants again and want to know which is which. This notebook
# goes from the two tables to a decision, and compares it with an assignment solver.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

import permvi as pv

# %% [markdown]
# The data are simulated, so that you can check the answer. Plants keep their leaf angle and stem
# thickness (in standard units) up to a change of about 0.5.

# %%
CHANGE = 0.5
NAMES = ["ash", "beech", "birch", "cedar", "elder", "elm", "fir", "larch", "lime", "maple"]
NAMES += ["oak", "yew"]


def simulate(seed: int) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    """Return spring, autumn, and which row of spring each plant of autumn is."""
    rng = np.random.default_rng(seed)
    spring = pd.DataFrame(rng.normal(size=(12, 2)), NAMES, ["angle", "stem"])
    truth = rng.permutation(12)
    seen = spring.to_numpy()[truth] + CHANGE * rng.normal(size=(12, 2))
    return spring, pd.DataFrame(seen, [f"pot {k}" for k in range(1, 13)], spring.columns), truth


spring, autumn, truth = simulate(4)
autumn.head()

# %% [markdown]
# ## The posterior
#
# `PointMatching` says that a plant is near its own row of spring. Columns are matched by name,
# and the names of the rows go through to the answer. Twelve plants have 479 million matchings,
# which are summed exactly.

# %%
labels = (list(autumn.index), list(spring.index))
model = pv.models.PointMatching(autumn, spring, scale=CHANGE, labels=labels)
posterior = pv.fit(model)
posterior

# %% [markdown]
# The lines of the picture are as dark as their pair is probable.

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
pv.plots.point_matching(posterior, autumn.to_numpy(), spring.to_numpy(), axes[0])
pv.plots.marginals(posterior, axes[1])
plt.show()

# %% [markdown]
# `to_frame` has a row for each pot: its best name, the runner-up, and the set of names that
# holds the true one with probability 0.95.

# %%
table = posterior.to_frame()
columns = ["item", "best", "probability", "runner_up", "runner_up_probability"]
table[[*columns, "credible_set"]].round(3)

# %% [markdown]
# ## One best answer is not enough
#
# An assignment solver finds the most probable matching, and so does `posterior.mode`. It does
# not tell that this matching is one of many.

# %%
costs = ((autumn.to_numpy()[:, None] - spring.to_numpy()) ** 2).sum(axis=2) / (2 * CHANGE**2)
_, assigned = linear_sum_assignment(costs)
best = posterior.top(1)[0].probability
print("the same matching:", bool((assigned == posterior.mode).all()))
print(f"the best matching has probability {best:.3f}")
print(
    f"of its pairs, {posterior.marginals[range(12), assigned].sum():.1f} are expected to be right"
)
print(f"of its pairs, {(assigned == truth).sum()} are right")

# %% [markdown]
# ## A decision
#
# Suppose that you will plant out the pots whose name you know, and send the others to a
# laboratory. A wrong name costs five times as much as a test. Then a pot should be tested if its
# best name is less probable than 0.8. What you expect to go wrong is the sum of what is left.

# %%
sure = table["probability"] >= 0.8
expected = (1 - table.loc[sure, "probability"]).sum()
print(f"plant {sure.sum()} pots with {expected:.2f} wrong names expected; test {(~sure).sum()}:")
print(", ".join(table.loc[~sure, "item"]))

# %% [markdown]
# Questions about several pots at once have answers, too.

# %%
first, second = np.argsort(posterior.marginals.max(axis=1))[:2]
posterior.together(labels[0][first], labels[0][second], k=4)

# %% [markdown]
# ## Are these probabilities right?
#
# Among pairs of probability 0.7, seven of ten should be true. One garden cannot show this, but
# two hundred simulated ones can, and an exact fit takes milliseconds.

# %%
p, hit = [], []
for seed in range(200):
    near, far, pairs = simulate(1000 + seed)
    found = pv.fit(pv.models.PointMatching(far, near, scale=CHANGE))
    p.append(found.marginals.ravel())
    hit.append((np.arange(12) == pairs[:, None]).ravel())
p, hit = np.concatenate(p), np.concatenate(hit)
bins = np.minimum((p * 10).astype(int), 9)
said = np.bincount(bins, p) / np.bincount(bins)
came = np.bincount(bins, hit) / np.bincount(bins)
figure, ax = plt.subplots(figsize=(4, 3.6), layout="constrained")
ax.plot([0, 1], [0, 1], color="0.8")
ax.plot(said, came, "o-")
ax.set(xlabel="probability of a pair", ylabel="share of true pairs")
plt.show()

# %% [markdown]
# The dots lie on the diagonal, because the model is the one that made the data. For your own
# data, `posterior.check(model)` tells whether the distances are as the model says.

# %%
posterior.check(model)

# %% [markdown]
# ## If plants may be missing
#
# Two pots are new, and two plants of spring died. Give weights for being unmatched: here a pair
# farther than three standard deviations is worse than none.

# %%
strangers = pd.DataFrame([[4.0, 4.0], [-4.0, 3.0]], ["new A", "new B"], autumn.columns)
survivors = pd.concat([autumn[:-2], strangers])
alone = float(-(3.0**2) / 2 - np.log(2 * np.pi * CHANGE**2))
partial = pv.fit(
    pv.models.PointMatching(
        survivors,
        spring,
        scale=CHANGE,
        labels=(list(survivors.index), labels[1]),
        row_unmatched=alone,
        col_unmatched=0.0,
    )
)
partial.to_frame()[["item", "best", "probability", "p_unmatched"]].tail(4).round(3)
