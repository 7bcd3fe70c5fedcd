"""The order of items behind rankings, ranks and pairwise comparisons."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from scipy.special import logsumexp, softmax

from permvi._checks import one_of
from permvi._jax import pytree
from permvi.models import _arguments, _predictive
from permvi.models.labels import Labels, distinct, is_frame

Unranked = Literal["absent", "below"]

# The range of log theta: from almost no agreement to almost no disagreement.
_LOG_THETAS = (np.log(1e-7), np.log(60.0))
# Quadrature nodes: a minimum, and a number per posterior standard deviation of log theta, which is
# about 1 / sqrt(c) after c choices.
_MIN_NODES = 400
_NODES_PER_SD = 2
# The log density is tabulated at this many values of D at most, with linear interpolation between
# them. Where all counts are whole and D takes fewer values, the table has each of them.
_MAX_ENTRIES = 8192
# Draws whose contradicted pairs are counted at once: their (num, n, n) comparisons stay in memory.
_DRAWS_AT_ONCE = 200
# Steps of each Markov chain per item, where there are too many items to enumerate their orders.
_STEPS_PER_ITEM = 1000


@pytree(
    leaves=("orders", "counts", "against", "thetas", "log_weights", "grid", "table"),
    static=("unranked", "labels"),
)
class Rankings:
    r"""The common order of items behind rankings, a Mallows model with unknown dispersion.

    A judge who ranks :math:`r` items is :math:`d` adjacent exchanges (Kendall's distance) away from
    the true order of these items with probability :math:`e^{-\theta d} / Z_r(\theta)`. A judge who
    lists only the best :math:`k` of :math:`r` items leaves open how the others follow. The sum over
    all completions is

    .. math::
        \frac{e^{-\theta d}}{\prod_{t=0}^{k-1} (1 + e^{-\theta} + \dots + e^{-\theta (r-t-1)})},

    where :math:`d` counts the pairs with a listed item that the true order reverses (Fligner and
    Verducci 1986). A comparison is a ranking of two items. The likelihood therefore depends on the
    order only through :math:`D`, the number of pairs that it contradicts, and :math:`\theta` is
    integrated out of :math:`e^{-\theta D} / Z(\theta)` under the prior :math:`e^{-\theta}` by
    quadrature. All orders are equally probable a priori.

    A permutation holds the rank of each item: ``perm[i] = 0`` if item i is the best. `permvi.fit`
    enumerates the orders of up to 9 items and runs Markov chains beyond. It reports the mean and
    standard deviation of :math:`\theta` as ``posterior.latents["theta"]``.

    Args:
        orders: R rankings, each a sequence of item names or of integers, best first. Lengths may
            differ. An (R, k) integer array is padded with -1 at the ends of its rows. If all
            entries are integers and ``items`` is None, the items are 0, 1, ... up to the largest.
        items: Names of all items, in any order. By default items are numbered in the order in which
            the rankings name them first. With ``items``, integers in ``orders`` are names if
            ``items`` has them, else positions in ``items``.
        counts: (R,) number of times that each ranking was given, at least 0; 1 by default.
        unranked: What is known about items that a ranking does not list: "absent", they did not
            take part, or "below", they come after the listed ones (best-of lists).

    Attributes:
        orders: (R, k) integers, item numbers padded with -1; rankings of count 0 are left out.
        counts: (R,) floats.
        against: (n, n) floats: ``against[i, j]`` is how often j was ranked before i.

    Raises:
        ValueError: An item is unknown or listed twice, a count is negative, or there are fewer than
            two items.
        TypeError: An argument has the wrong type.

    Example:
        >>> model = Rankings([["Rome", "Paris", "Lima"], ["Paris", "Rome"]])
        >>> model.items
        ('Rome', 'Paris', 'Lima')
        >>> model.orders.tolist()
        [[0, 1, 2], [1, 0, -1]]

    References:
        Fligner, Verducci (1986), Distance based ranking models, J. R. Statist. Soc. B.
    """

    num_sites = 1
    relaxed = False

    orders: Any
    counts: Any
    against: Any
    thetas: Any
    log_weights: Any
    grid: Any
    table: Any
    unranked: Unranked
    labels: Labels

    def __init__(
        self,
        orders: Any,
        items: Sequence[Any] | None = None,
        counts: Any = None,
        unranked: Unranked = "absent",
    ) -> None:
        one_of("unranked", unranked, get_args(Unranked))
        self.unranked = unranked
        names, lists = _numbered("orders", orders, items)
        times = _counts("counts", counts, len(lists))
        kept = [r for r, listed in enumerate(lists) if listed and times[r] > 0]
        if len(names) < 2 or not kept:
            raise ValueError(
                "orders must hold at least one ranking and two items, got "
                f"{len(kept)} rankings of {len(names)} items."
            )
        self.counts = times[kept]
        self.orders = np.full((len(kept), max(len(lists[r]) for r in kept)), -1)
        for row, r in zip(self.orders, kept, strict=True):
            row[: len(lists[r])] = lists[r]
        self.labels = (names, tuple(str(rank) for rank in range(1, len(names) + 1)))
        self._integrate()
        self._tabulate()

    @classmethod
    def from_comparisons(cls, comparisons: Any, items: Sequence[Any] | None = None) -> Self:
        """Build the model from results of pairwise comparisons.

        Args:
            comparisons: Rows (winner, loser) or (winner, loser, count): a sequence of tuples, an
                array or a DataFrame with these columns.
            items: As for `Rankings`.

        Example:
            >>> Rankings.from_comparisons([("A", "B", 3), ("B", "A")]).against.tolist()
            [[0.0, 1.0], [3.0, 0.0]]
        """
        rows = _rows("comparisons", comparisons)
        for k, row in enumerate(rows):
            if len(row) not in (2, 3):
                raise ValueError(
                    f"comparisons[{k}] must be (winner, loser) or (winner, loser, count), got "
                    f"{row!r:.60}."
                )
        names, pairs = _numbered("comparisons", [row[:2] for row in rows], items)
        times = [row[2] if len(row) == 3 else 1.0 for row in rows]
        counts = _counts("counts of comparisons", times, len(rows))
        return cls([[names[i] for i in pair] for pair in pairs], names, counts)

    @classmethod
    def from_ranks(
        cls,
        ranks: Any,
        items: Sequence[Any] | None = None,
        counts: Any = None,
        unranked: Unranked = "absent",
    ) -> Self:
        """Build the model from a table of ranks.

        Args:
            ranks: (R, n) numbers, the smallest of a row for its best item; NaN where an item was
                not ranked. Ranks need not be consecutive, but a row must not repeat one. The
                columns of a DataFrame name the items.
            items: (n,) names of the columns.
            counts: As for `Rankings`.
            unranked: As for `Rankings`.

        Example:
            >>> Rankings.from_ranks([[1, 2, 3], [2, 1, float("nan")]]).orders.tolist()
            [[0, 1, 2], [1, 0, -1]]
        """
        table = _arguments.real("ranks", ranks, (2,))
        if items is None:
            items = list(ranks.columns) if is_frame(ranks) else range(table.shape[1])
        names = distinct("items", items)
        if len(names) != table.shape[1]:
            raise ValueError(
                f"items must name each of {table.shape[1]} columns of ranks, got {len(names)}."
            )
        orders = []
        for r, row in enumerate(table):
            order, tie = order_by_rank(row)
            if tie is not None:
                raise ValueError(
                    f"ranks[{r}] must not repeat a rank, got {row[tie[0]]:g} for "
                    f"{names[tie[0]]!r:.60} and {names[tie[1]]!r:.60}."
                )
            orders.append([names[i] for i in order])
        return cls(orders, names, counts, unranked)

    @property
    def items(self) -> tuple[str, ...]:
        """(n,) names of the items, in the order of the rows."""
        return self.labels[0] or ()

    @property
    def shape(self) -> tuple[int, int]:
        """The number of items, twice: there are as many ranks."""
        return self.against.shape[-2], self.against.shape[-1]

    @property
    def log_constant(self) -> float:
        """The maximum of the log density, which `log_density` leaves out.

        In float32 the differences between the best orders would otherwise be lost to rounding.
        """
        return float(self.grid[2])

    @property
    def auto_method(self) -> tuple[str, dict[str, Any]]:
        """Markov chains, where the orders cannot be enumerated: a step costs next to nothing."""
        return "mcmc", {"num_steps": _STEPS_PER_ITEM * self.shape[0]}

    def log_density(self, X: ArrayLike) -> jax.Array:
        """(..., n, n) 0/1 matrices -> (...) log densities, less `log_constant`."""
        return self.log_density_of(jnp.argmax(jnp.asarray(X), axis=-1))

    def log_density_of(self, perm: ArrayLike) -> jax.Array:
        """(..., n) ranks from 0 -> (...) log densities, less `log_constant`."""
        ranks, table = jnp.asarray(perm), jnp.asarray(self.table)
        low, step = (jnp.asarray(self.grid)[k] for k in (0, 1))
        before = ranks[..., :, None] < ranks[..., None, :]
        contradicted = jnp.sum(jnp.where(before, jnp.asarray(self.against), 0), axis=(-2, -1))
        place = (contradicted - low) / step
        below = jnp.clip(jnp.floor(place).astype(int), 0, len(table) - 2)
        share = place - below
        return (1 - share) * table[below] + share * table[below + 1]

    def integrated_latents(self, draws: np.ndarray) -> dict[str, tuple[float, float]]:
        """The posterior mean and standard deviation of theta, given (num, n) draws of the ranks."""
        parts = np.array_split(draws, -(-len(draws) // _DRAWS_AT_ONCE))
        contradicted, times = np.unique(
            np.concatenate([_contradicted(part, self.against) for part in parts]),
            return_counts=True,
        )
        weights = np.zeros_like(self.thetas)
        for pairs, count in zip(contradicted, times, strict=True):
            weights += count / len(draws) * softmax(self.log_weights - self.thetas * pairs)
        mean = float(weights @ self.thetas)
        return {"theta": (mean, float(np.sqrt(weights @ (self.thetas - mean) ** 2)))}

    def predictive_tests(self, draws: np.ndarray, latents: Any) -> _predictive.Findings | str:
        """Test whether judges are as far from the drawn orders (num, n) as one theta says."""
        del latents
        if (self.counts != np.rint(self.counts)).any():
            return "judges with fractional counts cannot be simulated"
        # A choice from r items is off by how many of the others the drawn order puts first.
        distances, sizes = np.zeros((len(draws), len(self.orders))), []
        for r, row in enumerate(self.orders):
            choices = list(self._choices(row))
            for item, after in choices:
                distances[:, r] += (draws[:, after] < draws[:, [item]]).sum(axis=1)
            sizes.append([len(after) + 1 for _, after in choices])
        totals = (distances @ self.counts).tolist()
        rng = np.random.default_rng(_predictive.SEED)
        laws = (softmax(self.log_weights - self.thetas * total) for total in totals)
        thetas = np.array([rng.choice(self.thetas, p=law) for law in laws])
        return _predictive.judge_tests(distances, sizes, self.counts.astype(int), thetas, rng)

    def _choices(self, row: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the items of a ranking (k,), each with those that it was preferred to."""
        listed = row[row >= 0]
        below = self.unranked == "below"
        others = np.setdiff1d(np.arange(len(self.items)), listed) if below else listed[:0]
        for t, item in enumerate(listed.tolist()):
            yield item, np.concatenate([listed[t + 1 :], others])

    def _integrate(self) -> None:
        """Count the pairs of all rankings; set quadrature nodes and weights for theta."""
        n = len(self.items)
        num_choices = float(self.counts @ (self.orders >= 0).sum(axis=1))
        width = _LOG_THETAS[1] - _LOG_THETAS[0]
        num_nodes = max(_MIN_NODES, int(_NODES_PER_SD * width * np.sqrt(num_choices)))
        log_thetas = np.linspace(*_LOG_THETAS, num_nodes)
        self.thetas = np.exp(log_thetas)
        # choices[r]: how often one item was chosen from r.
        self.against, choices = np.zeros((n, n)), np.zeros(n + 1)
        for row, count in zip(self.orders, self.counts, strict=True):
            for item, after in self._choices(row):
                self.against[after, item] += count
                choices[len(after) + 1] += count
        # A choice from r items is normalised by a geometric sum of r terms.
        sizes = np.arange(1, n + 1)
        log_sums = np.log(np.expm1(-np.outer(sizes, self.thetas)) / np.expm1(-self.thetas))
        # The prior of theta, and d theta = theta d log theta.
        measure = np.log(np.gradient(log_thetas)) + log_thetas - self.thetas
        self.log_weights = measure - choices[1:] @ log_sums

    def _tabulate(self) -> None:
        """Tabulate the log density over D; ``grid`` is its first D, the step and the maximum."""
        low = float(np.minimum(self.against, self.against.T).sum() / 2)
        high = float(np.maximum(self.against, self.against.T).sum() / 2)
        whole = bool((self.against == np.rint(self.against)).all())
        entries = int(np.clip(high - low + 1, 2, _MAX_ENTRIES)) if whole else _MAX_ENTRIES
        contradicted = np.linspace(low, max(high, low + 1), entries)
        values = np.concatenate(
            [
                logsumexp(self.log_weights - np.multiply.outer(part, self.thetas), axis=-1)
                for part in np.array_split(contradicted, 64)
            ]
        )
        self.grid = np.array([low, contradicted[1] - contradicted[0], values.max()])
        self.table = values - values.max()


def order_by_rank(ranks: np.ndarray) -> tuple[list[int], tuple[int, int] | None]:
    """The items of a row of ranks, best first and without NaN, and the first two of equal rank."""
    ranked = np.flatnonzero(~np.isnan(ranks))
    order = ranked[np.argsort(ranks[ranked], kind="stable")].tolist()
    ties = (pair for pair in itertools.pairwise(order) if ranks[pair[0]] == ranks[pair[1]])
    return order, next(ties, None)


def _contradicted(ranks: np.ndarray, against: np.ndarray) -> np.ndarray:
    """(num, n) ranks -> (num,) numbers of pairs that the orders contradict."""
    before = ranks[:, :, None] < ranks[:, None, :]
    return (before * against).sum(axis=(1, 2))


def _rows(name: str, value: Any) -> list[list[Any]]:
    """A list of lists from an array, a DataFrame or any sequence of sequences."""
    if is_frame(value):
        value = value.to_numpy()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise TypeError(f"{name} must be a sequence of sequences of items, got {value!r:.60}.")
    rows = []
    for k, row in enumerate(value):
        if isinstance(row, str) or not hasattr(row, "__iter__"):
            raise TypeError(f"{name}[{k}] must be a sequence of items, got {row!r:.60}.")
        rows.append(list(row))
    if not rows:
        raise ValueError(f"{name} must have at least one row, got none.")
    return rows


def _numbered(
    name: str, orders: Any, items: Sequence[Any] | None
) -> tuple[tuple[str, ...], list[list[int]]]:
    """The names of all items, and the rankings as item numbers without padding."""
    lists = _rows(name, orders)
    for listed in lists:
        while listed and _is_padding(listed[-1]):
            listed.pop()
    place: dict[str, int] = {}
    if items is not None:
        place = {item: k for k, item in enumerate(distinct("items", items))}
    elif all(_is_integer(entry) for listed in lists for entry in listed):
        largest = max((entry for listed in lists for entry in listed), default=-1)
        place = {str(k): k for k in range(largest + 1)}
    else:
        for listed in lists:
            for entry in listed:
                place.setdefault(str(entry), len(place))
    return tuple(place), [_numbers(f"{name}[{k}]", row, place) for k, row in enumerate(lists)]


def _numbers(name: str, listed: list[Any], place: dict[str, int]) -> list[int]:
    numbers: list[int] = []
    for entry in listed:
        number = place.get(str(entry))
        if number is None and _is_integer(entry) and 0 <= entry < len(place):
            number = int(entry)
        if number is None:
            raise ValueError(f"{name} must hold items or their numbers, got {entry!r:.60}.")
        if number in numbers:
            raise ValueError(f"{name} must list each item once, got {entry!r:.60} twice.")
        numbers.append(number)
    return numbers


def _counts(name: str, counts: Any, size: int) -> np.ndarray:
    """(size,) how often each ranking was given."""
    if counts is None:
        return np.ones(size)
    times = _arguments.real(name, counts, (1,))
    if times.shape != (size,):
        raise ValueError(f"{name} must have shape ({size},), got shape {times.shape}.")
    bad = times[~((times >= 0) & (times < np.inf))]
    if bad.size:
        raise ValueError(f"{name} must be finite and at least 0, got {bad[0]:g}.")
    return times


def _is_integer(entry: Any) -> bool:
    return isinstance(entry, int | np.integer) and not isinstance(entry, bool)


def _is_padding(entry: Any) -> bool:
    empty = entry is None or (isinstance(entry, float) and math.isnan(entry))
    return empty or (_is_integer(entry) and entry == -1)
