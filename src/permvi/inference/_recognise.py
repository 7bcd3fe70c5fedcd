"""Functions that are linear or quadratic on matchings, found from their values.

``lambda X: (scores * X).sum()`` is a table, and ``lambda X: -((A @ X - X @ B) ** 2).sum()`` a match
of two graphs, for which there are better engines than those for any density. On matchings they are

    f(X) = <A, X B X'> + <C, X> + constant.

For a JAX function of matrices, A and B are read off second derivatives at zero, and C is the
gradient there. Otherwise they come from what swaps change: C from single ones, A and B from pairs
of them. A form counts only if it gives the values of the function at many random matchings, and
after the fit at all matchings that a search around the answer evaluates. If it does not, the
function is fitted like any other.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar, cast

import numpy as np

from permvi._jax import jnp
from permvi._threads import single_threaded_blas
from permvi.inference._edges import (
    at_most,
    by_swaps,
    derivatives,
    merged,
    no_edges,
    second_differences,
    swapped,
    with_both_swaps,
    with_pair,
)
from permvi.inference.exact import method as exact
from permvi.inference.map import Quadratic
from permvi.inference.verdict.coverage import examine
from permvi.models import CallableModel, GraphMatching, LinearMatching, fingerprint
from permvi.models.callables import Input
from permvi.posterior import Posterior
from permvi.problem.evaluation import in_float64, log_densities, rounding_error
from permvi.problem.prepare import Prepared, prepare
from permvi.problem.problem import Problem

Found = TypeVar("Found")

# How far a value of the function may be from its form, in nats, how far if float32 explains it, and
# how far it may be in float32 for the form to be looked for again in float64.
_TOLERANCE, _ROUNDED, _NEARLY = 0.01, 0.05, 1.0
# What rounding may do to a sum, in units of what it does to its value, and to a form that is found
# from such sums, in these units.
_SUMMED, _FOUND = 8.0, 16.0
# Sets of four random matchings that tell whether what two swaps change adds up.
_NUM_TESTS = 64
# The most evaluations that a form may take, about as many as fits of any density; for edges and a
# table it is so many times n^2, and there should be so many rows.
_MAX_EVALUATIONS = 100_000
_CALLS_FOR_EDGES, _FEWEST_ROWS = 10, 8
# Scores beside edges that differ by less, in nats, are equal.
_SAME = 1e-4
# Draws of the answer that are compared.
_NUM_DRAWS = 500


class Recognised(NamedTuple):
    """A function and its form.

    Attributes:
        prepared: The function as a problem.
        model: A table or two graphs that say the same, with the constraints of the function.
        form: The form on matchings.
        deviation: The largest difference of the function and its form, in nats.
        num_evaluations: How many values of the function were used.
    """

    prepared: Prepared
    model: LinearMatching | GraphMatching
    form: Quadratic
    deviation: float
    num_evaluations: int

    def confirmed(self, posterior: Posterior) -> Posterior | None:
        """Return a posterior of ``model`` with a note, or None if the function is not of this form.

        All matchings that `examine` evaluates are compared: draws, their neighbours, and the ends
        of climbs from random matchings.
        """
        problem, reduction = self.prepared.problem, self.prepared.reduction
        draws = posterior.sample(at_most(_NUM_DRAWS, *self.model.shape), posterior.seed or 0)
        if reduction is not None:
            draws = np.asarray(reduction.reduce(jnp.asarray(draws))[0])

        def compare() -> tuple[float, int]:
            seen = examine(problem, draws)
            values = seen.log_densities
            if problem.is_partial:
                values = values - np.asarray(problem.unmatched.of(seen.perms))
            apart = np.abs(values - self._values(self.prepared.restore(seen.perms)))
            return float(apart.max()), len(apart)

        with single_threaded_blas():
            found = _precisely(problem, draws, compare)
        limit = _TOLERANCE if self.deviation <= _TOLERANCE else _ROUNDED
        if found is None or found[0] > limit:
            return None
        deviation, num = max(self.deviation, found[0]), self.num_evaluations + found[1]
        what = "quadratic, as that of two graphs" if self.form.A.any() else "a sum over pairs"
        note = (
            f"on matchings the function is {what}: {num} of its values are as expected to within "
            f"{deviation:.1g} nats"
        )
        diagnostics = posterior.diagnostics
        diagnostics = dataclasses.replace(diagnostics, reasons=(*diagnostics.reasons, note))
        num_evaluations = (posterior.num_evaluations or 0) + num
        return dataclasses.replace(
            posterior, diagnostics=diagnostics, num_evaluations=num_evaluations
        )

    def _values(self, perms: np.ndarray) -> np.ndarray:
        prior = self.prepared.model.prior_scores
        C = self.form.C if prior is None else self.form.C + np.asarray(prior)
        return _values(dataclasses.replace(self.form, C=C), perms)


def recognise(prepared: Prepared) -> Recognised | None:
    """Find the form of a function that is too large for enumeration, None if it has none."""
    model = prepared.model
    if not isinstance(model, CallableModel) or model.latents or exact.affordable(prepared):
        return None
    function = _Function(model, is_partial=prepared.problem.is_partial)
    if min(model.shape) < 4:
        return None
    with single_threaded_blas():
        found = function.search()
    if found is None:
        return None
    form, deviation = found
    given = {
        name: getattr(model, name)
        for name in ("mask", "known", "labels", "row_unmatched", "col_unmatched", "prior_scores")
    }
    same: LinearMatching | GraphMatching
    if form.A.any():
        same = GraphMatching(form.A, form.B, scores=form.C, **given)
    else:
        same = LinearMatching(form.C, **given)
    vars(same).update(log_constant=form.constant, fingerprint=fingerprint(model))
    return Recognised(prepared, same, form, deviation, function.num_evaluations)


class _Function:
    """A function of matchings whose form is wanted, without its constraints."""

    def __init__(self, model: CallableModel, *, is_partial: bool) -> None:
        self.shape, self.is_partial = model.shape, is_partial
        self.function, self.relaxed = model.function, model.relaxed
        kind = cast(Input, model.input)
        bare = CallableModel(model.function, model.shape, kind, jax=model.traceable)
        self.problem: Problem = prepare(bare).problem
        self.rng = np.random.default_rng(0)
        self.num_evaluations = 0

    def search(self) -> tuple[Quadratic, float] | None:
        """Return the form and the largest deviation from it, or None."""
        tests = self._tests()
        try:
            found = _precisely(self.problem, tests, lambda: self._best(tests))
            if found is None or found[1] <= _TOLERANCE:
                return found
            # A function that keeps constants in float32 has no values in float64.
            rounded = min(_ROUNDED, _FOUND * self._error(log_densities(self.problem, tests)))
            if found[1] <= _NEARLY and rounded > 0:
                better = in_float64(self.problem, tests[:1], lambda: self._best(tests))
                if better is not None and better[1] <= _TOLERANCE:
                    return better
        except (ValueError, TypeError, NotImplementedError):
            # It is of another kind, not finite everywhere, or its derivatives are unknown.
            return None
        return found if found[1] <= rounded else None

    def _best(self, tests: np.ndarray) -> tuple[Quadratic, float] | None:
        """Return the first form that holds at the tests, or the best one."""
        landmarks, best = self._landmarks(), None
        values, there = self._at(tests), self._at(landmarks)
        for form, perms, seen in self._forms(tests, values):
            all_perms = np.concatenate([tests, landmarks, perms])
            rest = np.concatenate([values, there, seen]) - _values(form, all_perms)
            constant = float(np.median(rest))
            deviation = float(np.abs(rest - constant).max())
            if best is None or deviation < best[1]:
                best = dataclasses.replace(form, constant=constant), deviation
            if deviation <= _TOLERANCE:
                break
        return best

    def _forms(
        self, tests: np.ndarray, values: np.ndarray
    ) -> Iterator[tuple[Quadratic, np.ndarray, np.ndarray]]:
        """Yield forms, the likely ones first, and matchings with their values beside the tests."""
        edges = no_edges(*self.shape)
        if self.relaxed:
            edges, gradient = derivatives(self.function, self.shape, self.rng)
            if edges.A.any() and self.is_partial:
                return
            if np.isfinite(gradient).all():
                yield dataclasses.replace(edges, C=gradient), tests[:0], values[:0]
        if not _vanish(second_differences(values - _values(edges, tests))):
            found = None if edges.A.any() else self._edges(values)
            if found is None:
                return
            edges = found
            # Often there is nothing else, and scores that are only rounding would break ties.
            yield edges, tests[:0], values[:0]
        perms = self._swaps()
        if perms is not None:
            seen = self._at(perms)
            C = self._table(seen - _values(edges, perms))
            C = merged(C, max(_SAME, 2 * self._error(values))) if edges.A.any() else C
            yield dataclasses.replace(edges, C=C), perms, seen

    def _error(self, values: np.ndarray) -> float:
        """Return what rounding may do to values of this size."""
        return _SUMMED * rounding_error(self.problem, values)

    def _edges(self, values: np.ndarray) -> Quadratic | None:
        """Return edges from swaps, None if three swaps do more than each two of them together."""
        n, m = self.shape
        too_many = _CALLS_FOR_EDGES * n * n > _MAX_EVALUATIONS
        if self.is_partial or n != m or n < _FEWEST_ROWS or too_many:
            return None
        perms, rows = (np.argsort(self.rng.random((_NUM_TESTS, n)), axis=1) for _ in range(2))
        i, k, p, q, *third = rows.T[:6]
        one = with_both_swaps(perms, i, k, p, q)
        other = swapped(one, *(np.tile(row, 4) for row in third))
        together, with_third = (second_differences(self._at(part)) for part in (one, other))
        if not _vanish(with_third - together):
            return None
        # If rows i and k take the columns of p and q, the sign of what is antisymmetric changes.
        turned = with_both_swaps(swapped(swapped(perms, i, p), k, q), i, k, p, q)
        exchanged = second_differences(self._at(turned))
        parts = np.abs([together + exchanged, together - exchanged])
        # Those that vanish for all tests say nothing.
        clearest = parts[[not _vanish(part) for part in parts]].min(axis=0, initial=np.inf).argmax()
        error = self._error(values)
        return by_swaps(self._at, rows[clearest, :4], perms[clearest], self.rng, error)

    def _tests(self) -> np.ndarray:
        """Return (4 * tests, n) matchings: random ones, with one swap, another one, and both."""
        n, m = self.shape
        size = max(n, m)
        square = np.argsort(self.rng.random((_NUM_TESTS, size)), axis=1)[:, :n]
        perms = np.where(square < m, square, -1)
        if self.is_partial:
            perms[self.rng.random(perms.shape) < 0.5] = -1
        rows = np.argsort(self.rng.random((_NUM_TESTS, n)), axis=1)
        return with_both_swaps(perms, *rows.T[:4])

    def _landmarks(self) -> np.ndarray:
        """Return matchings (num, n) that a function may treat specially: in order, or reversed."""
        n, m = self.shape
        size = max(n, m)
        shifts = np.arange(min(size, _NUM_TESTS))[:, None] + np.arange(n)
        return np.unique(
            [np.where(perm < m, perm, -1) for perm in [*(shifts % size), *(-shifts % size)]], axis=0
        )

    def _at(self, perms: np.ndarray) -> np.ndarray:
        """Return the values (num,) of the function at matchings (num, n)."""
        self.num_evaluations += len(perms)
        size = at_most(len(perms), *self.shape)
        parts = [perms[begin : begin + size] for begin in range(0, len(perms), size)]
        values = np.concatenate([log_densities(self.problem, part) for part in parts])
        if not np.isfinite(values).all():
            raise ValueError("the function must be finite to have a form, got -inf.")
        return values

    def _swaps(self) -> np.ndarray | None:
        """Return matchings whose values say what each pair is worth, None if they are too many.

        If rows may stay unmatched, these are the pairs alone, and no pair. Otherwise they are
        random matchings with the pairs (i, j) and (r, 0) for one row r and each i and j, and then
        the same ones with (i, 0) and (r, j). Of more labels than items, r is a row that is not
        there.
        """
        n, m = self.shape
        if 2 * n * m > _MAX_EVALUATIONS:
            return None
        if self.is_partial:
            perms = np.full((n * m + 1, n), -1)
            perms[np.arange(n * m), np.repeat(np.arange(n), m)] = np.tile(np.arange(m), n)
            return perms
        few, many = sorted((n, m))
        i, j = self._exchanged()
        r, first = np.full_like(i, self._spare()), np.zeros_like(i)
        square = np.argsort(self.rng.random((len(i), many)), axis=1)
        square = with_pair(with_pair(square, r, first), i, j)
        perms = np.concatenate([square, swapped(square, r, i)])[:, :few]
        if n <= m:
            return perms
        rows = np.full((len(perms), n), -1)
        np.put_along_axis(rows, perms, np.broadcast_to(np.arange(m), perms.shape), axis=1)
        return rows

    def _table(self, values: np.ndarray) -> np.ndarray:
        """Return scores (n, m) from the values of `_swaps`, up to what all matchings share."""
        n, m = self.shape
        if self.is_partial:
            return (values[:-1] - values[-1]).reshape(n, m)
        C = np.zeros((min(n, m), max(n, m)))
        C[self._exchanged()] = np.subtract(*np.split(values, 2))
        return C if n <= m else C.T

    def _spare(self) -> int:
        """Return the row r of `_swaps`, of the side that has fewer."""
        return max(self.shape) - 1 if self.shape[0] != self.shape[1] else 0

    def _exchanged(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs i and j of `_swaps`, rows being those of the side that has fewer."""
        few, many = sorted(self.shape)
        rows = np.setdiff1d(np.arange(few), self._spare())
        return np.repeat(rows, many - 1), np.tile(np.arange(1, many), len(rows))


def _values(form: Quadratic, perms: np.ndarray) -> np.ndarray:
    """Return the values (num,) of a form at matchings (num, n), of all rows if it has edges."""
    if form.A.any():
        return form.values(perms)
    chosen = form.C[np.arange(perms.shape[1]), np.maximum(perms, 0)]
    return form.constant + np.where(perms >= 0, chosen, 0.0).sum(axis=1)


def _precisely(
    problem: Problem, perms: np.ndarray, compute: Callable[[], Found | None]
) -> Found | None:
    """Compute in float64 if float32 rounds values as large as those at some matchings."""
    error = _SUMMED * rounding_error(problem, log_densities(problem, perms))
    return compute() if error <= _TOLERANCE / 2 else in_float64(problem, perms[:1], compute)


def _vanish(differences: np.ndarray) -> bool:
    """Return whether differences of at most eight values are zero but for rounding."""
    return bool(np.abs(differences).max() <= 4 * _TOLERANCE)
