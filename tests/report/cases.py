"""Posteriors that are worth looking at."""

import numpy as np

from permvi.posterior import ExactLaw, Latent, Posterior
from permvi.posterior.diagnostics import diagnose

NASTY = (
    "<img src=x onerror=window.hacked=1>",
    "</script><script>window.hacked=1</script>",
    "<!-- <script>",
    "a & b &amp; 'c' \"d\"",
    "\u2028 ${1} \u0645\u062d\u0645\u062f",
)


def nasty(rng):
    """Labels that a careless report would run."""
    scores = rng.normal(size=(5, 5))
    titles = [f"{name} as a label" for name in NASTY]
    return Posterior.from_exact(
        ExactLaw(scores), labels=(NASTY, titles), method=NASTY[0], settings={NASTY[1]: NASTY[2]}
    )


def partial(rng):
    """Everything that a report can show: unmatched items, latents, a verdict with all signals."""
    n, m = 5, 6
    law = ExactLaw(rng.normal(size=(n, m)), row_unmatched=0.5, col_unmatched=0.5)
    found = diagnose(
        disagreement_by_row=np.linspace(0, 0.3, n),
        ess_per_draw=0.05,
        missed_mass=0.1,
        converged=False,
        r_hat=1.2,
        k_hat=0.9,
        evidence_gap=2.0,
        vertex_distance=0.1,
        elbo_trace=-np.exp(-np.arange(50) / 10.0),
    )
    return Posterior.from_draws(
        law.sample(500, rng),
        shape=(n, m),
        labels=(
            [f"an item with a rather long name, number {i}" for i in range(n)],
            [f"{'unbroken' * 8}{j}" for j in range(m)],
        ),
        diagnostics=found,
        method="mcmc",
        seed=3,
        log_evidence=-12.5,
        log_evidence_kind="bound",
        log_evidence_se=0.02,
        num_evaluations=12345,
        seconds=1.5,
        fingerprint="ab" * 32,
        latents={
            "scale": Latent(np.array(0.25), np.array(0.5)),
            "W": Latent(np.zeros((20, 20)), np.ones((20, 20))),
        },
    )


def crowd(rng, n):
    """n items, of which neighbours are confused: blocks of three, in hidden order."""
    hidden = rng.permutation(n)
    draws = np.empty((200, n), dtype=np.int64)
    for first in range(0, n, 3):
        rows = np.arange(first, min(first + 3, n))
        keep = rng.random((200, 1)) < rng.choice([0.3, 0.7, 0.99])
        shifted = np.where(keep, rows, np.roll(rows, 1))
        draws[:, rows] = hidden[shifted]
    labels = [f"cell {i}" for i in range(n)], [f"neuron {j}" for j in range(n)]
    return Posterior.from_draws(draws, shape=(n, n), labels=labels, method="mcmc")


def sites(rng):
    """Three permutations, without labels."""
    law = ExactLaw(rng.normal(size=(3, 4, 4)))
    return Posterior.from_exact(law)


def extremes():
    """Probabilities at the ends of the scale, and between."""
    shares = np.array([1 - 0.3 - 0.0006 - 0.0002 - 2e-7, 0.3, 0.0006, 0.0002, 2e-7])
    perms = [[0, 1, 2, 3], [0, 1, 3, 2], [0, 2, 1, 3], [1, 0, 2, 3], [3, 1, 2, 0]]
    return Posterior.from_draws(perms, np.log(shares), shape=(4, 4), method="importance")
