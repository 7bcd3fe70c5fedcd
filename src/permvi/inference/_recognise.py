"""Functions that are linear or quadratic on matchings, found from their values.

``lambda X: (scores * X).sum()`` is a table, and ``lambda X: -((A @ X - X @ B) ** 2).sum()`` a match
of two graphs, for which there are better engines than those for any density. On matchings they are

    f(X) = <A, X B X'> + <C, X> + constant.

For a JAX function of matrices, A and B are read off second derivatives at zero, and C is the
gradient there. Otherwise C comes from what swaps change, beside what A and B explain. A form counts
only if it gives the values of the function at many random matchings, and after the fit at all
matchings that a search around the answer evaluates. If it does not, the function is fitted like any
other.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar, cast

import numpy as np

from permvi._jax import jax, jnp
from permvi._threads import single_threaded_blas
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

# How far a value of the function may be from its form, in nats, and how far it may be in float32
# for the form to be looked for again in float64.
_TOLERANCE, _NEARLY = 0.01, 1.0
# What rounding may do to a sum, in units of what it does to its value.
_SUMMED = 8.0
# Sets of four random matchings that tell whether what two swaps change adds up.
_NUM_TESTS = 64
# How often rows and columns are split in two at random to look at second derivatives, each of which
# is seen by an eighth of the splits, and the share of the largest below which they are rounding.
_NUM_SPLITS, _NOTHING = 64, 1e-4
# The most calls of a function on the host, and of a JAX function, that a table may take; the most
# rows whose edges are looked for; and the entries of matrices that are evaluated at once.
_MAX_CALLS, _MAX_EVALUATIONS, _MAX_ROWS, _AT_ONCE = 20_000, 100_000, 300, 1 << 24
# Decimals that are kept of edges in units of the largest, and of what is beside edges, in nats.
_EDGE_DIGITS, _DIGITS = 6, 4
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
        draws = posterior.sample(_NUM_DRAWS, posterior.seed or 0)
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
        if found is None or found[0] > _TOLERANCE:
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
            rounds = rounding_error(self.problem, np.ones(1)) > 0
            if found is not None and _TOLERANCE < found[1] <= _NEARLY and rounds:
                found = in_float64(self.problem, tests[:1], lambda: self._best(tests))
        except (ValueError, TypeError, NotImplementedError):
            # It is not finite everywhere, or has no derivatives.
            return None
        return found if found is not None and found[1] <= _TOLERANCE else None

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
        edges: Quadratic | None = self._no_edges()
        if self.relaxed:
            edges, gradient = self._derivatives()
            if edges is not None and np.isfinite(gradient).all():
                yield dataclasses.replace(edges, C=gradient), tests[:0], values[:0]
        if edges is None or not _adds_up(values - _values(edges, tests)):
            return
        perms = self._swaps()
        if perms is not None:
            seen = self._at(perms)
            C = self._table(seen - _values(edges, perms))
            # Ties between graphs must not be broken by rounding.
            C = C.round(_DIGITS) if edges.A.any() else C
            yield dataclasses.replace(edges, C=C), perms, seen

    def _tests(self) -> np.ndarray:
        """Return (4 * tests, n) matchings: random ones, with one swap, another one, and both."""
        n = self.shape[0]
        perms = self._complete(_NUM_TESTS)
        if self.is_partial:
            perms[self.rng.random(perms.shape) < 0.5] = -1
        rows = np.argsort(self.rng.random((_NUM_TESTS, n)), axis=1)
        first, second = (_swapped(perms, *rows.T[k : k + 2]) for k in (0, 2))
        return np.concatenate([perms, first, second, _swapped(first, *rows.T[2:4])])

    def _landmarks(self) -> np.ndarray:
        """Return matchings (num, n) that a function may treat specially: in order, or reversed."""
        n, m = self.shape
        size = max(n, m)
        shifts = np.arange(min(size, _NUM_TESTS))[:, None] + np.arange(n)
        return np.unique(
            [np.where(perm < m, perm, -1) for perm in [*(shifts % size), *(-shifts % size)]], axis=0
        )

    def _complete(self, num: int) -> np.ndarray:
        """Return (num, n) random matchings with as many pairs as possible."""
        n, m = self.shape
        size = max(n, m)
        square = np.argsort(self.rng.random((num, size)), axis=1)[:, :n]
        return np.where(square < m, square, -1)

    def _at(self, perms: np.ndarray) -> np.ndarray:
        """Return the values (num,) of the function at matchings (num, n)."""
        self.num_evaluations += len(perms)
        size = max(1, _AT_ONCE // (self.shape[0] * self.shape[1]))
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
        limit = _MAX_EVALUATIONS if self.problem.traceable else _MAX_CALLS
        if 2 * n * m > limit:
            return None
        if self.is_partial:
            perms = np.full((n * m + 1, n), -1)
            perms[np.arange(n * m), np.repeat(np.arange(n), m)] = np.tile(np.arange(m), n)
            return perms
        few, many = min(n, m), max(n, m)
        i, j = self._exchanged()
        r, first = np.full_like(i, self._spare()), np.zeros_like(i)
        square = np.argsort(self.rng.random((len(i), many)), axis=1)
        square = _with_pair(_with_pair(square, r, first), i, j)
        perms = np.concatenate([square, _swapped(square, r, i)])[:, :few]
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

    def _derivatives(self) -> tuple[Quadratic | None, np.ndarray]:
        """Return the edges, zero if there are none, None if they are no graphs', and the gradient.

        Pairs with one row or one column in common are in no matching together, so that only second
        derivatives for two rows and two columns count.
        """
        n, m = self.shape
        zero = jnp.zeros((n, m))
        gradient = jax.grad(self.function)
        at_zero = np.asarray(gradient(zero), np.float64)

        @jax.jit
        def hessian(directions: jax.Array) -> jax.Array:
            with jax.default_matmul_precision("highest"):
                return jax.lax.map(lambda V: jax.jvp(gradient, (zero,), (V,))[1], directions)

        def times(rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
            """Return the Hessian times rows (k, n) by cols (k, m): (k, n, m)."""
            given = rows[:, :, None] * cols[:, None, :]
            return np.asarray(hessian(jnp.asarray(given)), np.float64)

        # Vectors on a part of the rows or columns, and on the other one.
        p, q = self._split(n)
        u, v = self._split(m)
        blocks = np.einsum("sij,si,sj->sij", times(q, v), p != 0, u != 0)
        if not np.isfinite(blocks).all():
            return None, at_zero
        largest = np.abs(blocks).max()
        if largest == 0:
            return self._no_edges(), at_zero
        if n != m or self.is_partial or n > _MAX_ROWS:
            return None, at_zero
        eye, s = np.eye(n), np.abs(blocks).max(axis=(1, 2)).argmax()
        A = np.einsum("kij,j->ik", times(eye, np.repeat(v[s : s + 1], n, 0)), u[s])
        B = np.einsum("lij,i->jl", times(np.repeat(q[s : s + 1], n, 0), eye), p[s])
        edges = _graphs(A, B, u[s], v[s])
        if edges is None:
            return None, at_zero
        expected = _both_ways(edges, q, v)
        apart = np.abs(np.einsum("sij,si,sj->sij", expected, p != 0, u != 0) - blocks).max()
        return (edges if apart <= _NOTHING * largest else None), at_zero

    def _no_edges(self) -> Quadratic:
        n, m = self.shape
        return Quadratic(np.zeros((n, n)), np.zeros((m, m)), np.zeros((n, m)))

    def _split(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return random vectors (splits, size), zero on half of all places, and on the others."""
        halves = np.argsort(self.rng.random((_NUM_SPLITS, size)), axis=1) < size // 2
        vectors = self.rng.normal(size=(2, _NUM_SPLITS, size))
        return vectors[0] * halves, vectors[1] * ~halves


def _graphs(A: np.ndarray, B: np.ndarray, u: np.ndarray, v: np.ndarray) -> Quadratic | None:
    r"""Return the edges of a function, given two slices of its second derivatives.

    These are :math:`H_{(ij)(kl)} = a S_{ik} S'_{jl} + b T_{ik} T'_{jl}` for :math:`i \ne k` and
    :math:`j \ne l`, with S symmetric and T antisymmetric. ``A`` (n, n) is their sum with ``u v'``
    over j and l, and ``B`` a like sum over i and k. Return None if one slice vanishes.
    """
    n = len(A)
    off = ~np.eye(n, dtype=bool)
    A, B = A * off, B * off
    parts = []
    for sign in (1, -1):
        part, other = (A + sign * A.T) / 2, (B + sign * B.T) / 2
        if np.abs(part).max() <= _NOTHING * np.abs(A).max():
            parts.append((0 * A, 0 * B))
            continue
        along = u @ other @ v
        if along == 0:
            return None
        # Half of it, since each edge is met from both ends.
        parts.append((part, other / (2 * along)))
    A, B = (parts[0][k] + parts[1][k] for k in range(2))
    if not (A.any() and B.any()):
        return None
    size = np.abs(A).max() * np.abs(B).max()
    A, B = ((array / np.abs(array).max()).round(_EDGE_DIGITS) for array in (A, B))
    return Quadratic(size * A, B, np.zeros((n, n)))


def _both_ways(edges: Quadratic, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """Return second derivatives of edges times rows (k, n) by cols (k, n): (k, n, n)."""
    out = np.einsum("ki,kj->kij", rows @ edges.A.T, cols @ edges.B.T)
    return out + np.einsum("ki,kj->kij", rows @ edges.A, cols @ edges.B)


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


def _adds_up(values: np.ndarray) -> bool:
    """Return whether two swaps together change the values of `_Function._tests` as both alone."""
    none, one, other, both = np.split(values, 4)
    return bool(np.abs(none - one - other + both).max() <= 4 * _TOLERANCE)


def _swapped(perms: np.ndarray, i: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Return matchings (num, n) whose rows i (num,) and k (num,) have swapped their columns."""
    swapped, at = perms.copy(), np.arange(len(perms))
    swapped[at, i], swapped[at, k] = perms[at, k], perms[at, i]
    return swapped


def _with_pair(perms: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """Return permutations (num, n) with the pairs (rows, cols), (num,) each, by a swap."""
    return _swapped(perms, rows, np.argmax(perms == cols[:, None], axis=1))
