"""Generated problems of every model of matchings, and their answers by enumeration."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

import permvi as pv
from tests.properties.problems import answer_of, constraints, matchings


class World(NamedTuple):
    """A model to be made, and for each site what a posterior is compared with.

    ``values`` are log densities of all `matchings` of n rows and m columns, without the weights of
    staying unmatched.
    """

    make: Callable[[], Any]
    shape: tuple[int, int]
    sites: list[tuple[np.ndarray, dict[str, Any]]]
    labels: Any = None

    def answers(self):
        """The answer of each site, None for one that has none."""
        perms = matchings(*self.shape)
        return [answer_of(perms, values, *self.shape, **given) for values, given in self.sites]


def _labels(draw, n, m):
    if draw(st.integers(0, 2)):
        return None
    names = st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=6
    )
    return [draw(st.lists(names, min_size=size, max_size=size, unique=True)) for size in (n, m)]


def _pair_sums(table, perms):
    """Sum the entries of a table (n, m) over the pairs of matchings (num, n)."""
    padded = np.concatenate([table, np.zeros((len(table), 1))], axis=1)
    return padded[np.arange(len(table)), perms].sum(axis=1)


@st.composite
def points(draw, shapes):
    """Draw points around centres, with gaussian or Student's t noise."""
    (n, m), rng = draw(st.sampled_from(shapes)), _rng(draw)
    dims = draw(st.integers(1, 3))
    centers = rng.normal(size=(m, dims))
    spread = draw(st.sampled_from((0.3, 1.0, 30.0)))
    observations = (rng.normal(size=(n, dims)) * spread).astype(_dtype(draw))
    # Wide enough for densities that float32 keeps.
    scale = spread * draw(st.sampled_from((0.5, 1.0, 4.0)))
    noise = draw(st.sampled_from(("gaussian", "student_t")))
    z = (observations.astype(float)[:, None] - centers) / scale
    if noise == "gaussian":
        table = (-0.5 * z**2 - 0.5 * np.log(2 * np.pi) - np.log(scale)).sum(-1)
    else:
        # Student's t of four degrees of freedom has the constant 3/8.
        table = (np.log(0.375) - 2.5 * np.log1p(z**2 / 4) - np.log(scale)).sum(-1)
    given, labels = constraints(draw, rng, n, m), _labels(draw, n, m)

    def make():
        return pv.models.PointMatching(observations, centers, scale, noise, labels=labels, **given)

    return World(make, (n, m), [(_pair_sums(table, matchings(n, m)), given)], labels)


@st.composite
def sites(draw, shapes):
    """Draw several independent tables of scores."""
    (n, m), rng = draw(st.sampled_from(shapes)), _rng(draw)
    num = draw(st.integers(2, 3))
    scores = draw(st.sampled_from((0.0, 1.5, 12.0))) * rng.normal(size=(num, n, m))
    offsets = draw(st.sampled_from((0.0, 1e8))) * rng.normal(size=(num, n, 1))
    scores = scores + offsets * (n <= m)
    given = [constraints(draw, rng, n, m, plain=True) for _ in range(num)]
    known = np.stack([one.get("known", np.full(n, -1)) for one in given])

    def make():
        return pv.models.LinearMatching(scores, known=known)

    parts = [
        (_pair_sums(table, matchings(n, m)), {"known": k})
        for table, k in zip(scores, known, strict=True)
    ]
    return World(make, (n, m), parts)


@st.composite
def graphs(draw, shapes):
    """Draw two graphs, with scores of single pairs or without."""
    (n, m), rng = draw(st.sampled_from(shapes)), _rng(draw)
    sparse = draw(st.booleans())
    A, B = (
        (rng.random((k, k)) < 0.5).astype(_dtype(draw)) if sparse else rng.normal(size=(k, k))
        for k in (n, m)
    )
    scale = draw(st.sampled_from((-1.0, 0.0, 0.3, 1.0, 4.0)))
    scores = 2 * rng.normal(size=(n, m)) if draw(st.booleans()) else None
    given, labels = constraints(draw, rng, n, m), _labels(draw, n, m)
    perms = matchings(n, m)
    X = (perms[:, :, None] == np.arange(m)).astype(float)
    values = scale * np.einsum("ik,pij,jl,pkl->p", A.astype(float), X, B.astype(float), X)
    if scores is not None:
        values = values + _pair_sums(scores, perms)

    def make():
        return pv.models.GraphMatching(A, B, scale, scores, labels=labels, **given)

    return World(make, (n, m), [(values, given)], labels)


@st.composite
def functions(draw, shapes):
    """Draw any function of permutations or of matrices, on the host."""
    (n, m), rng = draw(st.sampled_from(shapes)), _rng(draw)
    table = rng.normal(size=(n, m)) * draw(st.sampled_from((0.0, 1.0, 5.0)))
    # No sum over pairs: the number of rows that lie in order counts too.
    bonus = draw(st.sampled_from((0.0, 2.0, -1.0)))
    offset = draw(st.sampled_from((0.0, -1e3, 1e6)))

    def of_perms(perms):
        ordered = (np.diff(perms, axis=1) > 0).sum(axis=1)
        return offset + _pair_sums(table, perms) + bonus * ordered

    def of_perm(perm):
        return of_perms(np.asarray(perm)[None])[0]

    def of_matrix(X):
        return of_perm(np.where(X.any(axis=1), X.argmax(axis=1), -1))

    given, labels = constraints(draw, rng, n, m), _labels(draw, n, m)
    kind = draw(st.sampled_from(("perm", "matrix")))

    def make():
        return pv.models.CallableModel(
            {"perm": of_perm, "matrix": of_matrix}[kind],
            (n, m), kind, jax=False, labels=labels, **given,
        )  # fmt: skip

    return World(make, (n, m), [(of_perms(matchings(n, m)), given)], labels)


@st.composite
def lists(draw, shapes):
    """Draw lists of pairs, some of them left out."""
    (n, m), rng = draw(st.sampled_from(shapes)), _rng(draw)
    table = draw(st.sampled_from((0.0, 1.5, 12.0))) * rng.normal(size=(n, m))
    given, labels = constraints(draw, rng, n, m), _labels(draw, n, m)
    mask = given.pop("mask", np.ones((n, m), bool))
    known = given.get("known")
    if known is not None:
        # Known pairs have to be listed.
        mask[np.flatnonzero(known >= 0), known[known >= 0]] = True
    rows, cols = np.nonzero(mask)

    def make():
        return pv.models.SparseMatching(
            rows, cols, table[rows, cols], (n, m), labels=labels, **given
        )

    values = _pair_sums(table, matchings(n, m))
    return World(make, (n, m), [(values, {**given, "mask": mask})], labels)


WORLDS = {
    "points": points, "sites": sites, "graphs": graphs, "functions": functions, "lists": lists,
}  # fmt: skip


def _rng(draw):
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1)))


def _dtype(draw):
    return draw(st.sampled_from((np.float64, np.float32, np.float16)))
