"""Exact posteriors: of affordable linear models, and of models with few matchings."""

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from permvi._assignment.duality import best_matching
from permvi.inference.exact import ExactResult, k_best, solve_exact
from permvi.inference.exact.enumeration import TabularSolution, list_matchings
from permvi.inference.exact.solve import Method, solve_weights
from permvi.posterior.laws import Summary, register_law
from permvi.problem.sites import Layout, narrow
from permvi.problem.unmatched import LogWeights, build_weights


@register_law
class ExactLaw:
    """The exact posterior of a linear model, stored as its scores and solved when first needed.

    The arguments are those of :func:`~permvi.inference.exact.solve_exact`. For several independent
    permutations, ``scores`` is (sites, n, m), and the other arrays may have the site axis too.
    """

    kind: ClassVar[str] = "exact"

    def __init__(
        self,
        scores: ArrayLike,
        mask: ArrayLike | None = None,
        known: ArrayLike | None = None,
        row_unmatched: ArrayLike | None = None,
        col_unmatched: ArrayLike | None = None,
        *,
        method: Method = "auto",
        max_size: int = 24,
    ) -> None:
        given = {"scores": scores, "mask": mask, "known": known}
        given |= {"row_unmatched": row_unmatched, "col_unmatched": col_unmatched}
        self._arrays = {name: np.array(v) for name, v in given.items() if v is not None}
        self._layout = Layout.of("scores", self._arrays["scores"].shape)
        self._method: Method = method
        self._max_size = max_size

    @cached_property
    def result(self) -> ExactResult:
        """The solution of all sites together; see `solve_exact` for the errors it may raise."""
        return solve_exact(**self._problem(), method=self._method, max_size=self._max_size)

    def solved(self) -> Self:
        """Solve now, so that what cannot be solved is refused here, and return the law."""
        self.result  # noqa: B018 (a cached property)
        return self

    @property
    def entropy(self) -> float:
        """The entropy in nats."""
        return self.result.entropy

    def summary(self) -> Summary:
        """Return marginals, mode and evidence."""
        result, layout = self.result, self._layout
        return Summary(
            marginals=layout.split_table(result.marginals),
            p_unmatched_rows=result.p_unmatched_rows.reshape(layout.event_shape),
            p_unmatched_cols=result.p_unmatched_cols.reshape(*layout.site_axes, -1),
            mode=layout.split(result.mode),
            log_evidence=result.log_evidence,
        )

    def sample(self, num: int, rng: np.random.Generator) -> np.ndarray:
        """Return exact independent draws."""
        return self._layout.split(self.result.sample(num, rng))

    def log_prob(self, perms: np.ndarray) -> np.ndarray:
        """Return exact log probabilities, -inf for matchings that are not allowed."""
        return self.result.log_prob(self._layout.join(perms))

    def top(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the k most probable matchings and their probabilities, by Murty's algorithm."""
        joined, log_weights = k_best(k=k, **self._problem())
        return self._layout.split(joined), np.exp(log_weights - self.result.log_evidence)

    def event_probability(self, event: Mapping[int, np.ndarray]) -> float:
        """Return the probability that items have allowed labels: the ratio of two evidences.

        ``event`` maps rows of all sites in one sequence to booleans (m+1,), the last for unmatched.
        """
        table = build_weights(**self._problem()).table.copy()
        m = self._layout.num_cols
        for row, allowed in event.items():
            first = row // self._layout.num_rows * m
            table[row, first : first + m][~allowed[:m]] = -np.inf
            if not allowed[m]:
                table[row, -1] = -np.inf
        if best_matching(table) is None:
            return 0.0
        found = solve_weights(LogWeights(table), self._method, self._max_size)
        return math.exp(min(found.log_evidence - self.result.log_evidence, 0.0))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the problem as arrays; it is solved again after loading."""
        options = {"method": np.array(self._method), "max_size": np.array(self._max_size)}
        return self._arrays | options

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Rebuild the law from ``to_arrays``."""
        problem: dict[str, Any] = dict(arrays)
        problem["method"] = str(arrays["method"])
        problem["max_size"] = int(arrays["max_size"])
        return cls(**problem)

    def __getstate__(self) -> dict[str, object]:
        # The solution holds closures, which cannot be pickled; it can be computed again.
        return {name: value for name, value in self.__dict__.items() if name != "result"}

    def _problem(self) -> dict[str, Any]:
        return join_sites(self._arrays, self._layout)


def join_sites(arrays: Mapping[str, np.ndarray], layout: Layout) -> dict[str, Any]:
    """Return the arguments of ``solve_exact`` for all sites together.

    ``arrays`` are those of the model, by the same names, with a site axis or without.
    """
    if layout.num_sites == 1:
        return dict(arrays)
    n, m = layout.num_rows, layout.num_cols
    forms: dict[str, tuple[tuple[int, ...], Callable[[np.ndarray], np.ndarray]]] = {
        "scores": ((n, m), lambda table: layout.join_tables(table, fill=-np.inf)),
        "mask": ((n, m), lambda table: layout.join_tables(table, fill=False)),
        "known": ((n,), layout.join),
        "row_unmatched": ((n,), np.ravel),
        "col_unmatched": ((m,), np.ravel),
    }
    problem = {}
    for name, value in arrays.items():
        shape, join = forms[name]
        problem[name] = join(_per_site(name, value, (layout.num_sites, *shape)))
    return problem


@register_law
class TabularLaw:
    """The exact posterior of a small model, as a list of matchings and their log weights.

    Args:
        perms: (count, n) or (count, sites, n) distinct matchings, -1 for unmatched.
        log_weights: (count,) log densities, normalised or not; they may be -inf.
        num_cols: The number of columns m of each site.
    """

    kind: ClassVar[str] = "tabular"

    def __init__(self, perms: ArrayLike, log_weights: ArrayLike, num_cols: int) -> None:
        perms, values = np.asarray(perms), np.asarray(log_weights, dtype=np.float64)
        if perms.ndim not in (2, 3) or values.shape != perms.shape[:1]:
            raise ValueError(
                "perms must have shape (count, n) or (count, sites, n) with log_weights (count,), "
                f"got shapes {perms.shape} and {values.shape}."
            )
        if np.isnan(values).any() or not np.isfinite(values.max(initial=-np.inf)):
            raise ValueError("log_weights must be finite or -inf, and not all -inf.")
        self._layout = Layout.of("perms", (*perms.shape[1:], num_cols))
        rows, cols = self._layout.joined_shape
        if rows * np.log2(cols + 1) > 62:
            raise ValueError(f"perms must fit into 62 bits each, got {rows} rows, {cols} columns.")
        joined = self._layout.join(self._layout.check("perms", perms))[values > -np.inf]
        values = values[values > -np.inf]
        order = np.lexsort(joined.T[::-1])
        joined, values = joined[order], values[order]
        if (joined[1:] == joined[:-1]).all(axis=1).any():
            raise ValueError("perms must be distinct, got the same matching twice.")
        self._table = TabularSolution(joined, values, cols)

    @classmethod
    def from_result(cls, result: ExactResult, *, partial: bool = False) -> Self:
        """Return the law of a result of :func:`~permvi.inference.exact.enumerate_log_density`.

        Args:
            result: The posterior over at most 9 rows and columns.
            partial: Whether rows and columns could stay unmatched, as in that call.
        """
        alone = 0.0 if partial else None
        everything = build_weights(np.zeros(result.marginals.shape), None, None, alone, alone)
        perms = list_matchings(np.isfinite(everything.table))
        log_weights = result.log_prob(perms) + result.log_evidence
        return cls(perms, log_weights, result.marginals.shape[1])

    @property
    def entropy(self) -> float:
        """The entropy in nats."""
        return self._table.entropy

    def summary(self) -> Summary:
        """Return marginals, mode and evidence."""
        grounded, layout = self._table.marginals(), self._layout
        return Summary(
            marginals=layout.split_table(grounded[:-1, :-1]),
            p_unmatched_rows=grounded[:-1, -1].reshape(layout.event_shape),
            p_unmatched_cols=grounded[-1, :-1].reshape(*layout.site_axes, -1),
            mode=self.top(1)[0][0],
            log_evidence=self._table.log_total,
        )

    def sample(self, num: int, rng: np.random.Generator) -> np.ndarray:
        """Return exact independent draws."""
        return self._layout.split(self._table.draw(num, rng))

    def log_prob(self, perms: np.ndarray) -> np.ndarray:
        """Return exact log probabilities, -inf for matchings that are not listed."""
        return self._table.log_prob(self._layout.join(perms))

    def top(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the k most probable matchings and their probabilities."""
        best = np.argsort(-self._table.log_weights, kind="stable")[:k]
        return self._layout.split(self._table.matchings[best]), self._table.probs[best]

    def event_probability(self, event: Mapping[int, np.ndarray]) -> float:
        """Return the probability that items have allowed labels; see `ExactLaw`."""
        holds = np.ones(len(self._table.matchings), bool)
        n, m = self._layout.num_rows, self._layout.num_cols
        for row, allowed in event.items():
            joined = self._table.matchings[:, row]
            holds &= allowed[np.where(joined < 0, m, joined - row // n * m)]
        return float(self._table.probs[holds].sum())

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the table as arrays."""
        return {
            "perms": narrow(self._layout.split(self._table.matchings)),
            "log_weights": self._table.log_weights,
            "num_cols": np.array(self._layout.num_cols),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Rebuild the law from ``to_arrays``."""
        return cls(arrays["perms"], arrays["log_weights"], int(arrays["num_cols"]))


def _per_site(name: str, value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    try:
        return np.broadcast_to(value, shape)
    except ValueError:
        raise ValueError(f"{name} must broadcast to shape {shape}, got {value.shape}.") from None
