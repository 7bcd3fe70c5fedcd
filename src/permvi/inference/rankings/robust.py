"""Does a model of rankings fit, and what do ballots say if it does not?

Simulated ballots of the fitted model are compared with the ballots. Where they differ, the model's
probabilities are too sure: they follow from its assumptions and not only from the ballots. Ballots
drawn with replacement show how much the order depends on who happened to vote.
"""

import numpy as np

from permvi.inference.rankings.families import GAPS
from permvi.inference.rankings.solve import Answer
from permvi.models._predictive import Finding, draw_choices, group_tests, simulated_judges
from permvi.posterior import ModelCheck, Posterior
from permvi.posterior.predictive import judge

NUM_RESAMPLES = 400
# Enough for a p-value below the level of the check.
_SIMULATIONS = 200
# Comparisons of pairs in all simulations together, and voters that are always simulated.
_MAX_PAIRS = 40_000_000
_FEWEST_VOTERS = 500


def bootstrap(answer: Answer, seed: int, num: int = NUM_RESAMPLES) -> Posterior:
    """Return the law of the most probable order if ballots are drawn with replacement.

    The mode is that of the posterior. Parameters of the model stay at their posterior means.
    """
    rng = np.random.default_rng([seed, 1])
    ballots = answer.ballots
    draws = np.stack([answer.modal_ranks(ballots.resampled(rng), rng) for _ in range(num)])
    n = len(ballots.items)
    return Posterior.from_draws(
        draws, shape=(n, n), mode=answer.solved.mode, diagnostics=answer.diagnostics,
        method="bootstrap",
    )  # fmt: skip


def check(answer: Answer, seed: int, advice: str = "") -> ModelCheck:
    """Test the model at its posterior mode and mean parameters against simulated ballots.

    Three statistics: the squared deviations of how often each item came before each other one, the
    variance of the distances of ballots to the order, and the share of contradicted pairs that a
    second order saves, which groups of voters increase. ``advice`` is added to the last finding.
    """
    ballots = answer.ballots
    counts = ballots.counts
    if (counts != np.rint(counts)).any():
        return ModelCheck("no check", ("no check, since counts are not whole numbers",), {})
    n = len(ballots.items)
    rng = np.random.default_rng([seed, 2])
    order = answer.solved.mode
    most = max(_FEWEST_VOTERS, _MAX_PAIRS // (_SIMULATIONS * n * n))
    if counts.sum() > most:
        # A sample of the voters shows a misfit that matters.
        counts = rng.multivariate_hypergeometric(counts.astype(int), most).astype(float)
    num = _SIMULATIONS
    judges, simulated = simulated_judges(
        ballots, counts, num, lambda items, alike: simulate(answer, items, num * alike, rng)
    )
    tables, spreads = np.zeros((num + 1, n, n)), np.zeros(num + 1)
    for k, levels in enumerate([judges, *simulated]):
        tables[k], distances = _pairs(levels, order)
        spreads[k] = distances.var()
    rows, cols = np.triu_indices(n, 1)
    flat = tables[:, rows, cols]
    mean, variance = flat[1:].mean(axis=0), flat[1:].var(axis=0) + 0.25
    deviations = ((flat - mean) ** 2 / variance).sum(axis=1)
    p_pairs = float((1 + (deviations[1:] >= deviations[0]).sum()) / (num + 1))
    tail = min((spreads[1:] >= spreads[0]).sum(), (spreads[1:] <= spreads[0]).sum())
    p_spread = min(1.0, float(2 * (1 + tail) / (num + 1)))
    worst = int(np.argmax((flat[0] - mean) ** 2 / variance))
    names = ballots.items[rows[worst]], ballots.items[cols[worst]]
    ratio = spreads[0] / max(float(spreads[1:].mean()), 1e-12)
    findings = [
        Finding(
            "pairs", p_pairs,
            f"{names[1]} came before {names[0]} {flat[0, worst]:,.0f} times and not "
            f"{mean[worst]:,.0f} times as the model says",
        ),
        Finding(
            "distances", p_spread,
            f"distances of the rankings to the order vary {ratio:.2g} times as much as the model "
            "says",
        ),
        *group_tests(judges, simulated, rng, advice),
    ]  # fmt: skip
    return judge(findings)


def _pairs(levels: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n, n) how often j came before i, and (V,) the pairs of each ballot that reverse an order."""
    n = levels.shape[1]
    table, distances = np.zeros((n, n)), np.zeros(len(levels))
    present = levels >= 0
    for i in range(n):
        before = present & (levels < levels[:, [i]])
        table[i] = before.sum(axis=0)
        distances += before[:, order > order[i]].sum(axis=1)
    return table, distances


def simulate(answer: Answer, items: np.ndarray, num: int, rng: np.random.Generator) -> np.ndarray:
    """(num, r) ranks of some items in ballots drawn from the fitted model."""
    size = len(items)
    if answer.worths is not None:
        noisy = answer.worths.mean[items] + rng.gumbel(size=(num, size))
        return np.argsort(np.argsort(-noisy, axis=1), axis=1)
    # Ranks of the items among themselves in the true order.
    true = np.argsort(np.argsort(answer.solved.mode[items]))
    thetas = answer.solved.thetas[:, 0]
    if answer.name in ("mallows", "generalised_mallows"):
        by_place = thetas[np.minimum(np.arange(size), len(thetas) - 1)]
        return draw_choices(np.broadcast_to(true, (num, size)), by_place, rng)
    theta = float(thetas[0])
    if answer.name == "cayley":
        return _by_cycles(true, theta, num, rng)
    from permvi.inference.rankings import subset_kernels

    costs = GAPS[answer.name](np.subtract.outer(true, np.arange(size)).astype(float))
    if size <= 12:
        none = np.zeros((size, size))
        before, after, _ = subset_kernels.optima(none, costs, 0.0)
        return subset_kernels.summary(none, costs, theta, before, after, num, rng)[2]
    return _by_exchanges(costs, theta, num, rng)


def _by_cycles(true: np.ndarray, theta: float, num: int, rng: np.random.Generator) -> np.ndarray:
    """Exchange item k with an earlier one, each with weight exp(-theta), or with none."""
    size = len(true)
    perms = np.tile(np.arange(size), (num, 1))
    rows = np.arange(num)
    for k in range(1, size):
        other = np.where(
            rng.random(num) < 1 / (1 + k * np.exp(-theta)), k, rng.integers(k, size=num)
        )
        perms[rows, k], perms[rows, other] = perms[rows, other], perms[rows, k].copy()
    return perms[:, true]


def _by_exchanges(
    costs: np.ndarray, theta: float, num: int, rng: np.random.Generator
) -> np.ndarray:
    """Exchange random pairs of items with Metropolis' rule, all ballots at once."""
    size = len(costs)
    ranks = np.tile(np.argmin(costs, axis=1), (num, 1))
    rows = np.arange(num)
    for _ in range(20 * size):
        a, b = rng.integers(size, size=(2, num))
        at_a, at_b = ranks[rows, a], ranks[rows, b]
        change = costs[a, at_b] + costs[b, at_a] - costs[a, at_a] - costs[b, at_b]
        accepted = rng.random(num) < np.exp(np.minimum(0.0, -theta * change))
        ranks[rows, a] = np.where(accepted, at_b, at_a)
        ranks[rows, b] = np.where(accepted, at_a, ranks[rows, b])
    return ranks
