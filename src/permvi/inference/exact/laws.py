"""Laws that are known exactly: linear models of any size that is affordable, and small tables."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from permvi.inference.exact import ExactResult, k_best, solve_exact
from permvi.inference.exact.enumeration import TabularSolution, list_matchings
from permvi.inference.exact.solve import Method
from permvi.posterior.laws import Summary, register_law
from permvi.problem.sites import Layout, narrow
from permvi.problem.unmatched import build_weights

_OPTIONAL = ("mask", "known", "row_unmatched", "col_unmatched")


@register_law
class ExactLaw:
    """The exact posterior of a linear model, kept as its scores and solved when first needed.

    The arguments are those of :func:`~permvi.inference.exact.solve_exact`; with several
    (independent) permutations, ``scores`` has a leading site axis and the others may have one.

    Args:
        scores: (n, m) or (sites, n, m) log weights of pairs.
        mask: (n, m), or with the site axis: the pairs that are allowed.
        known: (n,), or with the site axis: known columns, -1 for unknown.
        row_unmatched: Scalar, (n,), or with the site axis: log weights of unmatched rows.
        col_unmatched: Scalar, (m,), or with the site axis: log weights of unmatched columns.
        method: How to solve it: "auto", "dp" or "enumeration".
        max_size: The largest block to take on.
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
        max_size: int = 22,
    ) -> None:
        given = (mask, known, row_unmatched, col_unmatched)
        self._arrays = {"scores": np.array(scores)} | {
            name: np.array(value)
            for name, value in zip(_OPTIONAL, given, strict=True)
            if value is not None
        }
        self._layout = Layout.of("scores", self._arrays["scores"].shape)
        self._method: Method = method
        self._max_size = max_size

    @cached_property
    def result(self) -> ExactResult:
        """The solution, of all sites joined.

        Raises:
            ValueError: The arguments are wrong, no matching is feasible, or a block is too large.
        """
        return solve_exact(**self._problem(), method=self._method, max_size=self._max_size)

    def solved(self) -> Self:
        """Solve now, so that what cannot be solved is refused here, and return the law."""
        self.result  # noqa: B018 (a cached property)
        return self

    @property
    def entropy(self) -> float:
        """Entropy in nats."""
        return self.result.entropy

    def summary(self) -> Summary:
        """Marginals, mode and evidence."""
        result, layout = self.result, self._layout
        return Summary(
            marginals=layout.split_table(result.marginals),
            p_unmatched_rows=result.p_unmatched_rows.reshape(layout.event_shape),
            p_unmatched_cols=result.p_unmatched_cols.reshape(*layout.site_axes, -1),
            mode=layout.split(result.mode),
            log_evidence=result.log_evidence,
        )

    def sample(self, num: int, rng: np.random.Generator) -> np.ndarray:
        """Exact independent draws."""
        return self._layout.split(self.result.sample(num, rng))

    def log_prob(self, perms: np.ndarray) -> np.ndarray:
        """Exact log probabilities, -inf for what is not allowed."""
        return self.result.log_prob(self._layout.join(perms))

    def top(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k most probable matchings by Murty's algorithm."""
        joined, log_weights = k_best(k=k, **self._problem())
        return self._layout.split(joined), np.exp(log_weights - self.result.log_evidence)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The problem; its solution is computed anew after loading."""
        options = {"method": np.array(self._method), "max_size": np.array(self._max_size)}
        return self._arrays | options

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """The law that ``to_arrays`` described."""
        problem: dict[str, Any] = dict(arrays)
        problem["method"] = str(arrays["method"])
        problem["max_size"] = int(arrays["max_size"])
        return cls(**problem)

    def __getstate__(self) -> dict[str, object]:
        # The solution holds closures, which cannot be pickled, and can be had again.
        return {name: value for name, value in self.__dict__.items() if name != "result"}

    def _problem(self) -> dict[str, Any]:
        """The arguments of the exact engine, all sites joined."""
        layout = self._layout
        if layout.num_sites == 1:
            return dict(self._arrays)
        n, m = layout.num_rows, layout.num_cols
        problem = {"scores": layout.join_tables(self._arrays["scores"], fill=-np.inf)}
        shapes = {"mask": (n, m), "known": (n,), "row_unmatched": (n,), "col_unmatched": (m,)}
        for name in _OPTIONAL:
            if name in self._arrays:
                problem[name] = _per_site(name, self._arrays[name], layout, shapes[name])
        if "mask" in problem:
            problem["mask"] = layout.join_tables(problem["mask"], fill=False)
        if "known" in problem:
            problem["known"] = layout.join(problem["known"])
        for name in ("row_unmatched", "col_unmatched"):
            if name in problem:
                problem[name] = problem[name].ravel()
        return problem


@register_law
class TabularLaw:
    """A list of matchings and their log weights: exact posteriors of general small models.

    Args:
        perms: (count, n) or (count, sites, n) distinct matchings, -1 for unmatched.
        log_weights: (count,) their log densities, normalised or not; -inf allowed.
        num_cols: The number of columns m of each site.
    """

    kind: ClassVar[str] = "tabular"

    def __init__(self, perms: ArrayLike, log_weights: ArrayLike, num_cols: int) -> None:
        perms, values = np.asarray(perms), np.asarray(log_weights, dtype=np.float64)
        if perms.ndim not in (2, 3) or values.shape != perms.shape[:1]:
            raise ValueError(
                "perms must have shape (count, n) or (count, sites, n) with one of log_weights "
                f"each, got shapes {perms.shape} and {values.shape}."
            )
        if np.isnan(values).any() or not np.isfinite(values.max(initial=-np.inf)):
            raise ValueError("log_weights must be below inf, never NaN and not all -inf.")
        self._layout = Layout.of("perms", (*perms.shape[1:], num_cols))
        rows, cols = self._layout.joined_shape
        if rows * np.log2(cols + 1) > 62:
            raise ValueError(f"perms must be codable in 62 bits, got {rows} rows, {cols} columns.")
        joined = self._layout.join(self._layout.check("perms", perms))[values > -np.inf]
        values = values[values > -np.inf]
        order = np.lexsort(joined.T[::-1])
        joined, values = joined[order], values[order]
        if (joined[1:] == joined[:-1]).all(axis=1).any():
            raise ValueError("perms must be distinct, got the same matching twice.")
        self._table = TabularSolution(joined, values, cols)

    @classmethod
    def from_result(cls, result: ExactResult, *, partial: bool = False) -> Self:
        """The law of what :func:`~permvi.inference.exact.enumerate_log_density` found.

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
        """Entropy in nats."""
        probs, log_probs = self._table.probs, self._table.log_weights - self._table.log_total
        # Rounding must not make a certain posterior's entropy negative.
        return max(0.0, -float(probs[probs > 0] @ log_probs[probs > 0]))

    def summary(self) -> Summary:
        """Marginals, mode and evidence."""
        grounded, layout = self._table.marginals(), self._layout
        return Summary(
            marginals=layout.split_table(grounded[:-1, :-1]),
            p_unmatched_rows=grounded[:-1, -1].reshape(layout.event_shape),
            p_unmatched_cols=grounded[-1, :-1].reshape(*layout.site_axes, -1),
            mode=self.top(1)[0][0],
            log_evidence=self._table.log_total,
        )

    def sample(self, num: int, rng: np.random.Generator) -> np.ndarray:
        """Exact independent draws."""
        return self._layout.split(self._table.draw(num, rng))

    def log_prob(self, perms: np.ndarray) -> np.ndarray:
        """Exact log probabilities, -inf for what is not in the table."""
        return self._table.log_prob(self._layout.join(perms))

    def top(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k most probable matchings."""
        best = np.argsort(-self._table.log_weights, kind="stable")[:k]
        return self._layout.split(self._table.matchings[best]), self._table.probs[best]

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The table."""
        return {
            "perms": narrow(self._layout.split(self._table.matchings)),
            "log_weights": self._table.log_weights,
            "num_cols": np.array(self._layout.num_cols),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """The law that ``to_arrays`` described."""
        return cls(arrays["perms"], arrays["log_weights"], int(arrays["num_cols"]))


def _per_site(name: str, value: np.ndarray, layout: Layout, shape: tuple[int, ...]) -> np.ndarray:
    full = (layout.num_sites, *shape)
    try:
        return np.broadcast_to(value, full)
    except ValueError:
        raise ValueError(f"{name} must broadcast to shape {full}, got {value.shape}.") from None
