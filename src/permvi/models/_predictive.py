r"""Findings of a model against its data, given draws of the posterior.

If the model is right, a matching x drawn from the posterior and the data y are distributed as the
true matching and the data are. So a statistic S(y, x) with a known law given the matching, such as
the sum of squared residuals, has that law with drawn matchings too, although the posterior has
adapted to the data (Johnson 2007). Here S is averaged over draws, which narrows its law: its
variance is :math:`\mathrm{Var}\,S - E\,\mathrm{Var}(S \mid y)` (Louis 1982). Deviations are scaled
up accordingly before the known law turns them into a p-value.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

# Averaging never narrows a law to less than this share of its variance; draws are too few to tell.
_LEAST_VARIANCE = 0.1
# Simulations of a statistic whose law has no formula, and the most numbers for each of them.
_SIMULATIONS = 2000
_MAX_SIMULATED = 4_000_000
SEED = 0
# Items are called outliers where fewer than this many of all items would be as far off by chance.
_OUTLIER = 0.01
_MOST_OUTLIERS = 3


# Degrees of freedom of Student's t that stand for heavy tails, and the logs of its normalisers.
_HEAVY_TAILS = {
    df: math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
    for df in (1.0, 3.0, 8.0)
}
_DRAWS_FOR_TAILS = 50

# Groups of judges: the most items and compared pairs that are looked at in each set of judges, how
# judges are first split along a direction, and rounds of better splits.
_MOST_ITEMS, _MOST_COMPARED = 40, 50_000
_SPLITS, _ROUNDS = (0.5, 0.8, 0.2), 6


class Finding(NamedTuple):
    """A test of one property of the model.

    Attributes:
        name: The property.
        p_value: The probability of a deviation this large if the model is right.
        words: The deviation in words, for the case that the model does not fit.
    """

    name: str
    p_value: float
    words: str


class Outlier(NamedTuple):
    """An item that is far from where the model expects it.

    Attributes:
        site: The site of the item.
        row: Its row.
        distance: The root mean square of its residuals in standard deviations.
    """

    site: int
    row: int
    distance: float


class Findings(NamedTuple):
    """All tests of a model, and the items that deviate most."""

    tests: list[Finding]
    outliers: list[Outlier]


def averaged(statistics: np.ndarray, mean: float, variance: float) -> float:
    """Return the average of a statistic (num,) over draws, as far from its mean as one draw is."""
    left = max(variance - float(np.var(statistics)), _LEAST_VARIANCE * variance)
    return mean + (float(np.mean(statistics)) - mean) * float(np.sqrt(variance / left))


def two_sided(value: float, cdf: Callable[[float], Any], sf: Callable[[float], Any]) -> float:
    """Return the two-sided p-value of a value under a law."""
    return float(min(1.0, 2 * min(cdf(value), sf(value))))


def improbability(law: Any, value: int, least: int, most: int) -> float:
    """Return the probability of values of a discrete law no more probable than the one seen.

    The law is that of whole numbers from ``least`` to ``most`` with one peak.
    """
    mean, spread = float(law.mean()), float(law.std())
    # Beyond this many standard deviations probabilities vanish, except where the value itself is.
    reach = 12 * spread + 12 + abs(value - mean)
    near = np.arange(max(least, math.floor(mean - reach)), min(most, math.ceil(mean + reach)) + 1)
    log_p = law.logpmf(near)
    # Values that are as probable may differ in the last digits.
    as_rare = log_p <= law.logpmf(value) + 1e-7
    return float(min(1.0, np.exp(log_p[as_rare]).sum()))


def residual_tests(
    z: np.ndarray, *, known_scale: bool, what: str, features: Sequence[str] | None = None
) -> Findings:
    """Test standardised residuals, standard normal if the model is right.

    Args:
        z: (num, S, n, d) residuals of n items in each draw, NaN where an item has none.
        known_scale: Whether the model knows the scale; else its size is not tested.
        what: What the residuals are, a plural noun.
        features: (d,) names of the features; None if a shift of them is not to be tested.
    """
    # Imported here because models do not need it otherwise.
    from scipy.stats import chi2

    present = ~np.isnan(z)
    num = float(present.sum(axis=(1, 2, 3)).mean())
    squares = np.nansum(z**2, axis=(1, 2, 3))
    # Without any residuals there is no noise to compare them with.
    if num < 1 or not (known_scale or squares.any()):
        return Findings([], [])
    tests = []
    if known_scale:
        size = averaged(squares, num, 2 * num)
        ratio = float(np.sqrt(squares.mean() / num))
        tests.append(
            Finding(
                f"size of the {what}",
                two_sided(size, chi2(num).cdf, chi2(num).sf),
                f"{what} are {ratio:.2g} times as large as the scale of the noise says",
            )
        )
    else:
        # Residuals are compared with each other.
        z = z / np.sqrt(squares.mean() / num)
    tests.append(_tails(z[:_DRAWS_FOR_TAILS], num, what))
    if features is not None:
        tests.append(_shift(z, what, features))
    worst, outliers = _outliers(z, what)
    return Findings([*tests, worst], outliers)


def _tails(z: np.ndarray, num: float, what: str) -> Finding:
    """Test for heavy tails by the likelihood ratio of Student's t, against simulated residuals."""
    found = float(np.mean([_tail_statistic(draw[~np.isnan(draw)]) for draw in z]))
    count = max(round(num), 1)
    simulations = int(np.clip(_MAX_SIMULATED // count, 200, _SIMULATIONS))
    rng = np.random.default_rng(SEED)
    expected = np.array([_tail_statistic(rng.standard_normal(count)) for _ in range(simulations)])
    p = ((expected >= found).sum() + 1) / (simulations + 1)
    return Finding(
        f"tails of the {what}",
        float(p),
        f"{what} have heavier tails than the noise of the model",
    )


def _tail_statistic(z: np.ndarray) -> float:
    """Return the log likelihood ratio of Student's t to the normal density, for the best df."""
    squares = z**2
    normal = 0.5 * (squares.sum() + len(z) * math.log(2 * math.pi))
    return max(
        len(z) * constant - (df + 1) / 2 * float(np.log1p(squares / df).sum()) + float(normal)
        for df, constant in _HEAVY_TAILS.items()
    )


def _shift(z: np.ndarray, what: str, features: Sequence[str]) -> Finding:
    """Test whether the mean residual of each feature is zero, with the worst of them."""
    from scipy.stats import norm

    flat = z.reshape(len(z), -1, z.shape[-1])
    counts = np.maximum((~np.isnan(flat)).sum(axis=1), 1)
    means = np.nansum(flat, axis=1) / counts
    p_values = [
        two_sided(averaged(mean * np.sqrt(count), 0.0, 1.0), norm.cdf, norm.sf)
        for mean, count in zip(means.T, counts.T, strict=True)
    ]
    worst = int(np.argmin(p_values))
    mean = float(means[:, worst].mean())
    return Finding(
        f"mean of the {what}",
        min(1.0, len(features) * p_values[worst]),
        f"{what} are shifted by {mean:+.2g} standard deviations of the noise in {features[worst]}",
    )


def _outliers(z: np.ndarray, what: str) -> tuple[Finding, list[Outlier]]:
    """Test the item whose residuals are largest, and list those that chance does not explain."""
    from scipy.stats import chi2

    squares = np.nansum(z**2, axis=-1)
    degrees = np.maximum((~np.isnan(z)).sum(axis=-1), 1)
    # (S, n) the mean over draws of the probability of a larger residual.
    p_values = chi2.sf(squares, degrees).mean(axis=0)
    num = p_values.size
    order = np.argsort(p_values, axis=None)[:_MOST_OUTLIERS]
    found = [
        Outlier(int(site), int(row), float(np.sqrt((squares / degrees)[:, site, row].mean())))
        for site, row in zip(*np.unravel_index(order, p_values.shape), strict=True)
        if p_values[site, row] * num < _OUTLIER
    ]
    smallest = float(p_values.min())
    p = -float(np.expm1(num * np.log1p(-min(smallest, 1 - 1e-12))))
    largest = found[0].distance if found else float("nan")
    return Finding(
        f"largest of the {what}",
        p,
        f"some {what} are too large for the noise of the model ({largest:.2g} standard deviations "
        "at most)",
    ), found


def judge_test(
    distances: np.ndarray,
    sizes: Sequence[Sequence[int]],
    counts: np.ndarray,
    thetas: np.ndarray,
    rng: np.random.Generator,
) -> Finding:
    r"""Test whether the distances of judges to a common order vary as one dispersion says.

    The sum over judges of :math:`(d - E\,d)^2 / \mathrm{Var}\,d` is compared with that of simulated
    judges, draw by draw. It is large where judges differ in how well they know the order, or follow
    several orders. A choice from r items adds 0 to r - 1 to the distance d, with probabilities
    proportional to :math:`e^{-\theta}, e^{-2 \theta}, \dots` (Fligner and Verducci 1986).

    Args:
        distances: (num, R) distances of rankings to each drawn order.
        sizes: The sizes r of the choices of each of R rankings.
        counts: (R,) how many judges gave each ranking.
        thetas: (num,) the dispersion drawn with each order.
        rng: The generator of simulated judges.
    """
    # Judges of the same choices have the same law.
    kinds = sorted({tuple(each) for each in sizes})
    kind = np.array([kinds.index(tuple(each)) for each in sizes])
    found, simulated = np.zeros((2, len(thetas)))
    for k, theta in enumerate(thetas.tolist()):
        for place, choices in enumerate(kinds):
            mine = kind == place
            judged = np.repeat(distances[k, mine], counts[mine])
            laws = [np.exp(-theta * np.arange(size)) for size in choices]
            laws = [law / law.sum() for law in laws]
            mean = sum(float(law @ np.arange(len(law))) for law in laws)
            variance = sum(
                float(law @ (np.arange(len(law)) - law @ np.arange(len(law))) ** 2) for law in laws
            )
            if variance < 1e-12:
                continue
            steps = [rng.choice(len(law), size=len(judged), p=law) for law in laws]
            drawn = np.sum(steps, axis=0)
            for values, total in ((judged, found), (drawn, simulated)):
                total[k] += float(((values - mean) ** 2).sum() / variance)
    p = 2 * min((simulated >= found).mean(), (simulated <= found).mean()) + 1 / len(thetas)
    more = "more" if found.mean() > simulated.mean() else "less"
    finding = (
        f"distances of the rankings to the common order vary {more} than one dispersion allows "
        f"({found.mean() / max(simulated.mean(), 1e-300):.2g} times)"
    )
    return Finding("distances to the common order", min(1.0, float(p)), finding)


def draw_choices(true: np.ndarray, thetas: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(num, r) true ranks, dispersions of places that broadcast to them -> (num, r) drawn ranks.

    A ranking is a sequence of choices from the items left, the v-th best with weight exp(-theta v).
    """
    num, size = true.shape
    left, rows = np.argsort(true, axis=1), np.arange(num)
    thetas = np.broadcast_to(np.maximum(thetas, 1e-9), (num, size))
    ranks = np.zeros((num, size), int)
    for place in range(size):
        theta, number = thetas[:, place], size - place
        tail = np.log1p(rng.random(num) * np.expm1(-theta * number))
        chosen = np.minimum((-tail / theta).astype(int), number - 1)
        ranks[rows, left[rows, chosen]] = place
        left = left[np.arange(number) != chosen[:, None]].reshape(num, number - 1)
    return ranks


def simulated_judges(
    ballots: Any, counts: np.ndarray, num: int, draw: Callable[[np.ndarray, int], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """(R,) counts of ballots -> (V, n) levels of all judges, and (num, V, n) simulated ones.

    These have the same ties and gaps. ``draw`` takes r items and a number of judges, and returns
    (num * judges, r) ranks, set by set.
    """
    rows = np.repeat(np.arange(len(counts)), counts.astype(int))
    kinds: dict[tuple[bytes, tuple[int, ...]], list[int]] = {}
    for judge, row in enumerate(rows.tolist()):
        key = (ballots.levels[row] >= 0).tobytes(), ballots.sizes[row]
        kinds.setdefault(key, []).append(judge)
    levels = np.full((num, len(rows), ballots.levels.shape[1]), -1, np.int16)
    for (present, sizes), alike in kinds.items():
        items = np.flatnonzero(np.frombuffer(present, bool))
        groups = np.searchsorted(np.cumsum(sizes), draw(items, len(alike)), side="right")
        levels[:, np.array(alike)[:, None], items] = groups.reshape(num, len(alike), len(items))
    return ballots.levels[rows], levels


def most_judges(num_items: int) -> int:
    """The most judges among whom groups are looked for."""
    n = min(num_items, _MOST_ITEMS)
    return _MOST_COMPARED // max(n * (n - 1) // 2, 1)


def group_tests(
    judges: np.ndarray, simulated: np.ndarray, rng: np.random.Generator, advice: str = ""
) -> list[Finding]:
    """Test whether two orders suit judges (V, n) better than they suit simulated ones (num, V, n).

    There is no test of comparisons, which do not tell who agrees with whom.
    """
    present = judges >= 0
    if present.sum(axis=1).max() < 3:
        return []
    items = np.sort(np.argsort(-present.sum(axis=0), kind="stable")[:_MOST_ITEMS])
    some = rng.permutation(len(judges))[: most_judges(len(items))]
    every = np.concatenate([judges[None].astype(np.int16), simulated])
    saved = saved_by_two(every[:, some[:, None], items])
    p = (1 + (saved[1:] >= saved[0] - 1e-6).sum()) / len(saved)
    words = (
        f"judges seem to form groups: two orders contradict {saved[0]:.0%} fewer pairs than one, "
        f"and not {saved[1:].mean():.0%} as the model says{advice}"
    )
    return [Finding("groups of judges", float(p), words.replace("%", " %"))]


def saved_by_two(levels: np.ndarray) -> np.ndarray:
    """(S, V, n) levels -> (S,) the share of contradicted pairs that a second order saves.

    Each of V judges follows one of two orders. Judges are split along the direction in which their
    rankings differ most, and by how far they are from the common order; then the best orders of
    the parts and the judges nearest to each of them are found in turn.
    """
    first, second = np.triu_indices(levels.shape[2], 1)
    ends = np.zeros((len(first), levels.shape[2]), np.float32)
    ends[np.arange(len(first)), first], ends[np.arange(len(first)), second] = 1, -1
    a, b = levels[..., first], levels[..., second]
    signs = np.where((a >= 0) & (b >= 0), np.sign(b - a), 0).astype(np.float32)
    total = signs.sum(axis=1)
    common = _signs_of_order(total, ends)
    wins = signs @ ends
    wins -= wins.mean(axis=1, keepdims=True)
    axes = np.linalg.eigh(np.swapaxes(wins, 1, 2) @ wins)[1][:, :, -1:]
    along, loyal = (wins @ axes)[..., 0], (signs @ common[..., None])[..., 0]
    one = (total * common).sum(axis=1)
    best = one
    for values, share in (*((along, share) for share in _SPLITS), (loyal, _SPLITS[-1])):
        part = values > np.quantile(values, share, axis=1, keepdims=True)
        for _ in range(_ROUNDS):
            sums = (part[:, None].astype(np.float32) @ signs)[:, 0]
            orders = [_signs_of_order(each, ends) for each in (sums, total - sums)]
            agreed = signs @ np.stack(orders, axis=2)
            best = np.maximum(best, agreed.max(axis=2).sum(axis=1))
            before, part = part, agreed[..., 0] > agreed[..., 1]
            if (part == before).all():
                break
    contradicted = (np.abs(signs).sum(axis=(1, 2)) - one) / 2
    return (best - one) / 2 / np.maximum(contradicted, 1)


def _signs_of_order(sums: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """(S, P) sums of signs of pairs -> signs of an order by wins, improved by neighbours."""
    n = ends.shape[1]
    wins, sets = np.zeros((len(sums), n, n), np.float32), np.arange(len(sums))
    first, second = ends.argmax(axis=1), ends.argmin(axis=1)
    wins[:, first, second], wins[:, second, first] = sums, -sums
    order = np.argsort(-wins.sum(axis=2), axis=1, kind="stable")
    for _ in range(n):
        changed = False
        for k in (*range(0, n - 1, 2), *range(1, n - 1, 2)):
            a, b = order[:, k].copy(), order[:, k + 1].copy()
            worse = wins[sets, a, b] < 0
            changed = changed or bool(worse.any())
            order[:, k], order[:, k + 1] = np.where(worse, b, a), np.where(worse, a, b)
        if not changed:
            break
    place = np.argsort(order, axis=1)
    return np.sign(place[:, second] - place[:, first]).astype(np.float32)
