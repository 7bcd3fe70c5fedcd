"""Generated matching problems, and their answers by enumeration."""

import functools
import itertools
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

NAMES = ("mask", "known", "row_unmatched", "col_unmatched")


class Case(NamedTuple):
    """The arguments of ``models.LinearMatching``; None for those that are left out."""

    scores: Any
    mask: Any = None
    known: Any = None
    row_unmatched: Any = None
    col_unmatched: Any = None

    @property
    def arguments(self):
        return {name: value for name, value in self._asdict().items() if value is not None}


class Answer(NamedTuple):
    """What a posterior has to be."""

    log_evidence: float
    marginals: np.ndarray
    p_unmatched_rows: np.ndarray
    p_unmatched_cols: np.ndarray


_DTYPES = (np.float64, np.float64, np.float32, np.float16, np.int8, np.int64, np.uint8)
_SCALES = (0.0, 1e-300, 1e-8, 0.3, 1.5, 1.5, 1.5, 12.0, 300.0, 3e4, 1e30, 1e300)
_OFFSETS = (0.0, 0.0, 0.0, -40.0, 6e6, -1e8)


@st.composite
def cases(draw, shapes=None, plain=False):
    """Draw a linear matching problem; ``plain`` has no mask and no unmatched weights."""
    if shapes is None:
        n, m = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    else:
        n, m = draw(st.sampled_from(shapes))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = draw(st.sampled_from(_SCALES)) * rng.normal(size=(n, m))
    if draw(st.booleans()):
        # Ties.
        scores = np.round(scores)
    dtype = draw(st.sampled_from(_DTYPES))
    if dtype is not np.float64:
        with np.errstate(over="ignore", invalid="ignore"):
            limit = np.finfo(dtype).max if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max
            low = 0 if dtype is np.uint8 else -float(limit)
            scores = np.clip(scores, low, float(limit) * 0.99).astype(dtype)
    elif n <= m:
        scores = scores + draw(st.sampled_from(_OFFSETS)) * rng.normal(size=(n, 1))
    if scores.dtype.kind == "f" and draw(st.integers(0, 4)) == 0:
        scores[rng.random((n, m)) < 0.2] = -np.inf
    return Case(scores, **constraints(draw, rng, n, m, plain=plain))


def constraints(draw, rng, n, m, plain=False):
    """Draw mask, known pairs and unmatched weights by name; ``plain`` has known pairs alone."""
    given = {}
    if not plain:
        if draw(st.integers(0, 2)) == 0:
            given["mask"] = rng.random((n, m)) < draw(st.sampled_from((0.3, 0.6, 0.9)))
        if draw(st.integers(0, 3)) == 0:
            given["row_unmatched"] = _weights(draw, rng, n)
        if draw(st.integers(0, 3)) == 0:
            given["col_unmatched"] = _weights(draw, rng, m)
    if draw(st.integers(0, 3)) == 0:
        given["known"] = known = np.full(n, -1)
        count = rng.integers(0, min(n, m) + 1)
        known[rng.permutation(n)[:count]] = rng.permutation(m)[:count]
    return given


def _weights(draw, rng, size):
    if draw(st.booleans()):
        return draw(st.sampled_from((0.0, -1.0, 2.5, -1e6, 50.0)))
    weights = rng.normal(size=size) * draw(st.sampled_from((1.0, 20.0)))
    return np.where(rng.random(size) < 0.2, -np.inf, weights)


@functools.cache
def matchings(n, m):
    """All partial matchings of n rows and m columns, (num, n) with -1 for unmatched."""
    found = [
        choice
        for choice in itertools.product(range(-1, m), repeat=n)
        if len({c for c in choice if c >= 0}) == sum(c >= 0 for c in choice)
    ]
    return np.array(found, dtype=int).reshape(-1, n)


def solve(case):
    """Return the answer by enumeration, or None if no matching is allowed."""
    scores = np.asarray(case.scores, dtype=np.float64)
    n, m = scores.shape
    perms = matchings(n, m)
    padded = np.concatenate([scores, np.zeros((n, 1))], axis=1)
    given = {name: value for name, value in case.arguments.items() if name in NAMES}
    return answer_of(perms, padded[np.arange(n), perms].sum(axis=1), n, m, **given)


def answer_of(perms, values, n, m, mask=None, known=None, row_unmatched=None, col_unmatched=None):
    """Return the answer for log densities (num,) of all matchings, None if none is allowed."""
    free = m > n or row_unmatched is not None
    rows = (0.0 if n > m else -np.inf) if row_unmatched is None else row_unmatched
    cols = (0.0 if free else -np.inf) if col_unmatched is None else col_unmatched
    used = (perms[:, :, None] == np.arange(m)).any(axis=1)
    weights = values + np.where(perms < 0, rows, 0.0).sum(axis=1)
    weights = weights + np.where(used, 0.0, cols).sum(axis=1)
    if mask is not None:
        allowed = np.concatenate([mask, np.ones((n, 1), bool)], axis=1)
        weights[~allowed[np.arange(n), perms].all(axis=1)] = -np.inf
    if known is not None:
        weights[((known >= 0) & (perms != known)).any(axis=1)] = -np.inf
    best = weights.max()
    if best == -np.inf:
        return None
    share = np.exp(weights - best)
    total = share.sum()
    p = share / total
    return Answer(
        float(best + np.log(total)),
        np.einsum("k,kij->ij", p, perms[:, :, None] == np.arange(m)),
        p @ (perms < 0),
        p @ ~used,
    )
