"""The order of items behind rankings, ranks and pairwise comparisons."""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.special import logsumexp, softmax

from permvi._jax import ArrayLike, jax, jnp, pytree
from permvi.models import _arguments, _predictive
from permvi.models.labels import Labels
from permvi.models.rankings import ballots as data
from permvi.models.rankings import files
from permvi.models.rankings.ballots import Ballots, Unranked

# The range of log theta: from almost no agreement to almost no disagreement.
_LOG_THETAS = (np.log(1e-7), np.log(60.0))
# Quadrature nodes: a minimum, and a number per posterior standard deviation of log theta, which is
# about 1 / sqrt(c) after c choices.
_MIN_NODES = 400
_NODES_PER_SD = 2
# The log density is tabulated at this many values of D at most, with linear interpolation between
# them. Where all counts are whole and D takes fewer values, the table has each of them.
_MAX_ENTRIES = 8192
# Numbers held at once while the table is made.
_AT_ONCE = 4_000_000
# Draws whose contradicted pairs are counted at once: their (num, n, n) comparisons stay in memory.
_DRAWS_AT_ONCE = 200
# Draws of judges to compare with.
_DRAWS_OF_JUDGES = 200
# Items whose orders are summed over by subsets.
_MAX_EXACT = 16


@pytree(
    leaves=("levels", "counts", "against", "thetas", "log_weights", "grid", "table"),
    static=("unranked", "labels", "note"),
)
class Rankings:
    r"""The common order of items behind rankings, a Mallows model with unknown dispersion.

    A judge who ranks :math:`r` items is :math:`d` adjacent exchanges (Kendall's distance) away from
    the true order of these items with probability :math:`e^{-\theta d} / Z_r(\theta)`. A judge who
    ties items, or lists only the best of them, leaves open how they follow. The sum over all
    rankings that agree with groups of :math:`b_1, b_2, \dots` tied items is

    .. math::
        e^{-\theta d} \, \frac{Z_{b_1}(\theta) Z_{b_2}(\theta) \cdots}{Z_r(\theta)}, \qquad
        Z_m(\theta) = \prod_{s=1}^m (1 + e^{-\theta} + \dots + e^{-\theta (s-1)}),

    where :math:`d` counts the pairs of different groups that the true order reverses (Fligner and
    Verducci 1986). A comparison is a ranking of two items. The likelihood therefore depends on the
    order only through :math:`D`, the number of pairs that it contradicts, and :math:`\theta` is
    integrated out of :math:`e^{-\theta D} / Z(\theta)` under the prior :math:`e^{-\theta}` by
    quadrature. All orders are equally probable a priori.

    A permutation holds the rank of each item: ``perm[i] = 0`` if item i is the best. `permvi.fit`
    sums over all orders of up to 16 items and runs Markov chains beyond. It reports the mean and
    standard deviation of :math:`\theta` as ``posterior.latents["theta"]``. `permvi.rank` compares
    this model with others.

    Args:
        orders: R rankings, each a sequence of item names or of integers, best first. Lengths may
            differ. A tuple, list or set within a ranking holds tied items. An (R, k) integer array
            is padded with -1 at the ends of its rows. If all entries are integers and ``items`` is
            None, the items are 0, 1, ... up to the largest.
        items: Names of all items, in any order. By default items are numbered in the order in which
            the rankings name them first. With ``items``, integers in ``orders`` are names if
            ``items`` has them, else positions in ``items``.
        counts: (R,) number of times that each ranking was given, at least 0; 1 by default.
        unranked: What is known about items that a ranking does not list: "absent", they did not
            take part, or "below", they come after the listed ones (best-of lists).

    Attributes:
        levels: (R, n) the number of each item's group in a ranking, 0 for the best and -1 for items
            that did not take part. Equal rankings are one row, and those of count 0 none.
        counts: (R,) floats.
        against: (n, n) floats: ``against[i, j]`` is how often j was ranked before i.
        note: What `read` assumed about a file, "" for other rankings.

    Raises:
        ValueError: An item is unknown or listed twice, a count is negative, or there are fewer than
            two items.
        TypeError: An argument has the wrong type.

    Examples:
        >>> model = Rankings([["Rome", "Paris", "Lima"], ["Paris", ("Rome", "Lima")]])
        >>> model.items
        ('Rome', 'Paris', 'Lima')
        >>> model.levels.tolist()
        [[0, 1, 2], [1, 0, 1]]

    References:
        Fligner, Verducci (1986), Distance based ranking models, J. R. Statist. Soc. B.
    """

    num_sites = 1
    relaxed = False

    levels: Any
    counts: Any
    against: Any
    thetas: Any
    log_weights: Any
    grid: Any
    table: Any
    unranked: Unranked
    labels: Labels
    note: str

    def __init__(
        self,
        orders: Any,
        items: Sequence[Any] | None = None,
        counts: Any = None,
        unranked: Unranked = "absent",
    ) -> None:
        names, groups = data.numbered("orders", orders, items)
        times = data.checked_counts("counts", counts, len(groups))
        self._hold(Ballots.of(names, groups, times, unranked), unranked)

    def _hold(self, ballots: Ballots, unranked: Unranked, note: str = "") -> None:
        """Set all attributes."""
        self.levels, self.counts = ballots.levels, ballots.counts
        self.unranked, self.note = unranked, note
        names = ballots.items
        self.labels = (names, tuple(str(rank) for rank in range(1, len(names) + 1)))
        self.against = ballots.against()
        self._integrate()
        self._tabulate()

    @classmethod
    def _of(cls, ballots: Ballots, unranked: Unranked, note: str = "") -> Self:
        model = cls.__new__(cls)
        model._hold(ballots, unranked, note)
        return model

    @classmethod
    def read(
        cls,
        path: str | PathLike[str],
        format: str = "auto",
        unranked: Unranked = "absent",
    ) -> Self:
        """Read rankings from a file of PrefLib or from a CSV file.

        Files of PrefLib (soc, soi, toc, toi) are known by their header or their name. A CSV file
        holds orders (a row lists items, the best first), ranks or ratings (a column for each item),
        or comparisons (columns winner and loser). ``note`` says what was assumed. See the page on
        ``permvi rank`` for all forms.

        Args:
            path: The file.
            format: "preflib", "orders", "ranks", "ratings" or "comparisons" if it is known.
            unranked: As for `Rankings`.

        Raises:
            ValueError: The file has no such form; the message names the line.
        """
        found = files.read(Path(path), format, unranked)
        return cls._of(found.ballots, unranked, found.note)

    @classmethod
    def from_comparisons(cls, comparisons: Any, items: Sequence[Any] | None = None) -> Self:
        """Build the model from results of pairwise comparisons.

        Args:
            comparisons: Rows (winner, loser) or (winner, loser, count): a sequence of tuples, an
                array or a DataFrame with these columns.
            items: As for `Rankings`.

        Examples:
            >>> Rankings.from_comparisons([("A", "B", 3), ("B", "A")]).against.tolist()
            [[0.0, 1.0], [3.0, 0.0]]
        """
        rows = data.rows_of("comparisons", comparisons)
        for k, row in enumerate(rows):
            if len(row) not in (2, 3):
                raise ValueError(
                    f"comparisons[{k}] must be (winner, loser) or (winner, loser, count), got "
                    f"{row!r:.60}."
                )
        names, pairs = data.numbered("comparisons", [row[:2] for row in rows], items)
        times = [row[2] if len(row) == 3 else 1.0 for row in rows]
        counts = data.checked_counts("counts of comparisons", times, len(rows))
        return cls._of(Ballots.of(names, pairs, counts), "absent")

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
                not ranked. Ranks need not be consecutive, and items of equal rank are tied. The
                columns of a DataFrame name the items.
            items: (n,) names of the columns.
            counts: As for `Rankings`.
            unranked: As for `Rankings`.

        Examples:
            >>> Rankings.from_ranks([[1, 2, 3], [2, 1, float("nan")]]).levels.tolist()
            [[0, 1, 2], [1, 0, -1]]
        """
        table = _arguments.real("ranks", ranks, (2,))
        names = data.named_columns("ranks", ranks if hasattr(ranks, "columns") else table, items)
        times = data.checked_counts("counts", counts, len(table))
        groups = [data.order_by_rank(row) for row in table]
        return cls._of(Ballots.of(names, groups, times, unranked), unranked)

    @classmethod
    def from_ratings(
        cls,
        ratings: Any,
        items: Sequence[Any] | None = None,
        counts: Any = None,
        unranked: Unranked = "absent",
    ) -> Self:
        """Build the model from a table of ratings, the largest of a row for its best item.

        Only the order of each judge's ratings counts. The arguments are those of `from_ranks`.

        Examples:
            >>> Rankings.from_ratings([[9.5, 7, 7]]).levels.tolist()
            [[0, 1, 1]]
        """
        table = _arguments.real("ratings", ratings, (2,))
        names = data.named_columns(
            "ratings", ratings if hasattr(ratings, "columns") else table, items
        )
        return cls.from_ranks(-table, names, counts, unranked)

    @property
    def items(self) -> tuple[str, ...]:
        """(n,) names of the items, in the order of the rows."""
        return self.labels[0] or ()

    @cached_property
    def ballots(self) -> Ballots:
        """The rankings, as methods of inference take them."""
        return Ballots(self.items, self.levels, self.counts)

    @property
    def orders(self) -> np.ndarray:
        """(R, k) item numbers, the best first, padded with -1; tied items are in no order."""
        return self.ballots.orders

    @property
    def shape(self) -> tuple[int, int]:
        """The number of items, twice: there are as many ranks."""
        return self.against.shape[-2], self.against.shape[-1]

    @property
    def log_constant(self) -> float:
        """The maximum of the log density and the prior 1 / n!, which `log_density` leaves out.

        In float32 the differences between the best orders would otherwise be lost to rounding.
        """
        return float(self.grid[2]) - math.lgamma(len(self.items) + 1)

    @property
    def auto_method(self) -> tuple[str, dict[str, Any]]:
        """Sums over all orders of up to 16 items, and Markov chains beyond."""
        return "exact" if len(self.items) <= _MAX_EXACT else "mcmc", {}

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
        """Test whether judges are as far from the drawn orders (num, n) as one theta says.

        A second test is whether they form groups.
        """
        del latents
        if (self.counts != np.rint(self.counts)).any():
            return "judges with fractional counts cannot be simulated"
        ballots = self.ballots
        distances = np.stack([_contradicted(draws, alone) for alone in _one_by_one(ballots)], 1)
        totals = (distances @ self.counts).tolist()
        rng = np.random.default_rng(_predictive.SEED)
        laws = (softmax(self.log_weights - self.thetas * total) for total in totals)
        thetas = np.array([rng.choice(self.thetas, p=law) for law in laws])
        counts = self.counts.astype(int)
        most = min(_predictive.most_judges(len(self.items)), int(counts.sum()))
        orders, dispersions = draws[:_DRAWS_OF_JUDGES], thetas[:_DRAWS_OF_JUDGES, None]

        def draw(items: np.ndarray, alike: int) -> np.ndarray:
            rows = np.repeat(np.arange(len(orders)), alike)
            return _predictive.draw_choices(orders[rows][:, items], dispersions[rows], rng)

        some = rng.multivariate_hypergeometric(counts, most)
        judges = _predictive.simulated_judges(ballots, some, len(orders), draw)
        advice = " (permvi.rank(..., groups=2) looks for them)"
        tests = _predictive.group_tests(*judges, rng, advice)
        if ballots.is_staged:
            # A list of k of r items is k choices, from r items, r - 1 and so on.
            choices = [[sum(s[k:]) for k, size in enumerate(s) if size == 1] for s in ballots.sizes]
            tests.append(_predictive.judge_test(distances, choices, counts, thetas, rng))
        return _predictive.Findings(tests, [])

    def _integrate(self) -> None:
        """Set quadrature nodes and weights for theta."""
        num_choices = float(self.counts @ (self.levels >= 0).sum(axis=1))
        width = _LOG_THETAS[1] - _LOG_THETAS[0]
        num_nodes = max(_MIN_NODES, int(_NODES_PER_SD * width * np.sqrt(num_choices)))
        log_thetas = np.linspace(*_LOG_THETAS, num_nodes)
        self.thetas = np.exp(log_thetas)
        # The prior of theta, and d theta = theta d log theta.
        measure = np.log(np.gradient(log_thetas)) + log_thetas - self.thetas
        self.log_weights = measure - self.ballots.log_normaliser(self.thetas)

    def _tabulate(self) -> None:
        """Tabulate the log density over D; ``grid`` is its first D, the step and the maximum."""
        low = float(np.minimum(self.against, self.against.T).sum() / 2)
        high = float(np.maximum(self.against, self.against.T).sum() / 2)
        whole = bool((self.against == np.rint(self.against)).all())
        entries = int(np.clip(high - low + 1, 2, _MAX_ENTRIES)) if whole else _MAX_ENTRIES
        contradicted = np.linspace(low, max(high, low + 1), entries)
        parts = 64 + entries * len(self.thetas) // _AT_ONCE
        values = np.concatenate(
            [
                logsumexp(self.log_weights - np.multiply.outer(part, self.thetas), axis=-1)
                for part in np.array_split(contradicted, parts)
            ]
        )
        self.grid = np.array([low, contradicted[1] - contradicted[0], values.max()])
        self.table = values - values.max()


def _contradicted(ranks: np.ndarray, against: np.ndarray) -> np.ndarray:
    """(num, n) ranks -> (num,) numbers of pairs that the orders contradict."""
    before = ranks[:, :, None] < ranks[:, None, :]
    return (before * against).sum(axis=(1, 2))


def _one_by_one(ballots: Ballots) -> Iterator[np.ndarray]:
    """Yield (n, n) for each ballot: whether it ranks j before i."""
    for row in ballots.levels:
        yield (row >= 0) & (row < row[:, None])
