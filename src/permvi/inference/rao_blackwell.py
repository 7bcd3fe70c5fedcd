r"""Marginals of linear problems from draws, by conditional probabilities of two rows at a time.

If the log density is linear, the law of two rows i and k given all others is a small table. With
weights g relative to those of unused columns, and F the choices open to them (free columns, their
own columns, and staying unmatched),

.. math:: P(x_i = a, x_k = b \mid \text{others}) \propto g_{ia} g_{kb}, \qquad
          a, b \in F,\ a \ne b \text{ unless both stay unmatched.}

The mean of these conditional probabilities over draws has the expectation of the frequencies and
less variance (Rao and Blackwell; Gelfand and Smith 1990), above all if many columns are free. Each
row is paired with others in turn, and its conditional probabilities are averaged over them.
"""

import dataclasses
import sys
from typing import NamedTuple

import numpy as np

from permvi.posterior import Posterior, normalise_marginals
from permvi.problem.prepare import Prepared
from permvi.problem.unmatched import tables_by_site

# The largest number of cells of conditional probabilities: in memory at a time, and in all.
_CELLS_PER_CHUNK = 1 << 20
_MAX_CELLS = 1 << 25
# The log weight of matching a column that has to be matched, larger than all others.
_BINDING = 1e4


class ConditionalMarginals(NamedTuple):
    """Marginals whose rows and columns sum to one up to noise, and their expected error.

    Attributes:
        pairs: (n, m) or (S, n, m) probabilities of pairs.
        rows: (n,) or (S, n) probabilities that rows stay unmatched.
        cols: (m,) or (S, m) probabilities that columns stay unused.
        sampling_error_by_row: (n,) or (S, n) expected total variation, by the given variances.
    """

    pairs: np.ndarray
    rows: np.ndarray
    cols: np.ndarray
    sampling_error_by_row: np.ndarray


def conditional_marginals(
    tables: np.ndarray, perms: np.ndarray, shares: np.ndarray, variances: np.ndarray
) -> ConditionalMarginals:
    """Return the marginals of a linear problem from weighted matchings.

    Those of pairs are the mean of two estimates, from pairs of rows and from pairs of columns.

    Args:
        tables: (S, n+1, m+1) grounded log weights, see `permvi.problem.unmatched`.
        perms: (num, n) or (num, S, n) feasible matchings, -1 for unmatched.
        shares: (num,) their weights, with sum 1.
        variances: (num,) their contributions to the variance of weighted means, as in
            `permvi.inference.discrete.correction.Corrected`.
    """
    (n, m), num_sites = (size - 1 for size in tables.shape[1:]), len(tables)
    sites = perms.reshape(len(perms), num_sites, n)
    found = []
    for s, table in enumerate(tables):
        of_rows, error = _moments(table, sites[:, s], shares, variances)
        of_cols, _ = _moments(table.T, _inverse(sites[:, s], m), shares, variances)
        pairs = (of_rows[:, :m] + of_cols[:, :n].T) / 2
        found.append((pairs, of_rows[:, m], of_cols[:, n], error))
    stacked = (np.stack(part) for part in zip(*found, strict=True))
    return ConditionalMarginals(*(part if perms.ndim == 3 else part[0] for part in stacked))


def _inverse(perms: np.ndarray, num_cols: int) -> np.ndarray:
    """Return the rows (num, m) of columns for the columns (num, n) of rows, -1 for unmatched."""
    holders = np.full((len(perms), num_cols + 1), -1)
    holders[np.arange(len(perms))[:, None], perms] = np.arange(perms.shape[1])
    return holders[:, :num_cols]


def _moments(
    table: np.ndarray, perms: np.ndarray, shares: np.ndarray, variances: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return (n, m+1) marginals of one site and (n,) expected errors."""
    num, n = perms.shape
    # Log weights (n, m+1) relative to those of unused columns.
    logs = table[:-1] - np.where(np.isfinite(table[-1]), table[-1], -_BINDING)
    cells = n * table.shape[1]
    size = max(1, _CELLS_PER_CHUNK // cells)
    shifts = np.arange(1, min(n, 1 + max(1, _MAX_CELLS // (num * cells))))
    first, within, squares = np.zeros((3, n, table.shape[1]))
    for start in range(0, num, size):
        chunk = slice(start, start + size)
        f = _conditionals(logs, perms[chunk], shifts)
        first += np.einsum("t,tij->ij", shares[chunk], f)
        within += np.einsum("t,tij->ij", variances[chunk], f)
        squares += np.einsum("t,tij->ij", variances[chunk], f**2)
    # The variance of a weighted mean of f is sum_t v_t (f_t - mean)^2; see `correction`.
    spread = squares - 2 * first * within + first**2 * variances.sum()
    return first, np.sqrt(np.maximum(spread, 0.0) / (2 * np.pi)).sum(axis=-1)


def _conditionals(logs: np.ndarray, perms: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """Return (num, n, m+1) probabilities of each row given all but one other, averaged over it."""
    num, n = perms.shape
    m = logs.shape[1] - 1
    rows, draws = np.arange(n), np.arange(num)[:, None]
    free = np.ones((num, m + 1), bool)
    free[draws, perms] = False
    free[:, m] = True
    own = np.zeros((num, n, m + 1), bool)
    own[draws, rows, perms] = True
    total = np.zeros(own.shape)
    for shift in shifts:
        other = np.roll(rows, -shift)
        available = free[:, None] | own | own[:, other]
        mine, theirs = (np.where(available, logs[k], -np.inf) for k in (rows, other))
        total += _softmax(mine + _logsumexp_without_each(theirs))
    if len(shifts) == 0:
        return _softmax(np.where(free[:, None] | own, logs, -np.inf))
    return total / len(shifts)


def _softmax(values: np.ndarray) -> np.ndarray:
    """Return the softmax along the last axis, in which some entry is finite."""
    found = np.exp(values - values.max(axis=-1, keepdims=True))
    return found / found.sum(axis=-1, keepdims=True)


def _logsumexp_without_each(values: np.ndarray) -> np.ndarray:
    """Return (..., C) log-sum-exp without each entry; for the last, the ground, of all entries.

    Subtracting the largest entry from the total would cancel, so the others are summed afresh.
    """
    largest = np.argmax(values, axis=-1)[..., None]
    # Less the largest one, since log 2 is lost beside values of 1e20.
    top = np.take_along_axis(values, largest, axis=-1)
    values = values - top
    rest = values.copy()
    np.put_along_axis(rest, largest, -np.inf, axis=-1)
    of_rest = _logsumexp(rest)
    total = np.logaddexp(0.0, of_rest)
    share = np.exp(values - total)
    np.put_along_axis(share, largest, 0.0, axis=-1)
    without = total + np.log1p(-share)
    np.put_along_axis(without, largest, of_rest, axis=-1)
    without[..., -1:] = total
    without += top
    return without


def _logsumexp(values: np.ndarray) -> np.ndarray:
    """Return log-sum-exp along the last axis, -inf if none is finite; SciPy is half as fast."""
    largest = np.maximum(values.max(axis=-1, keepdims=True), -sys.float_info.max)
    with np.errstate(divide="ignore"):
        return largest + np.log(np.exp(values - largest).sum(axis=-1, keepdims=True))


# With more draws times cells, conditional probabilities take longer than most fits.
_MAX_DRAWN_CELLS = 50_000_000


def conditional(
    prepared: Prepared, draws: np.ndarray, shares: np.ndarray, variances: np.ndarray | None = None
) -> ConditionalMarginals | None:
    """Return marginals from conditional probabilities, or None if they gain little or cost much.

    ``draws`` are matchings of the whole problem. The other arguments are as in
    `conditional_marginals`; leave out ``variances`` if the error is not needed.
    """
    if prepared.linear is None or not prepared.problem.is_partial:
        return None
    if draws.size * (prepared.model.shape[1] + 1) > _MAX_DRAWN_CELLS:
        return None
    tables = tables_by_site(prepared.linear.arguments(), prepared.model.num_sites)
    variances = np.zeros(len(draws)) if variances is None else variances
    return conditional_marginals(tables, draws, shares, variances)


def with_marginals(posterior: Posterior, found: ConditionalMarginals | None) -> Posterior:
    """Return the posterior with these marginals, if there are any."""
    if found is None:
        return posterior
    summed = normalise_marginals(found.pairs, found.rows, found.cols)
    return dataclasses.replace(posterior, **summed._asdict())
