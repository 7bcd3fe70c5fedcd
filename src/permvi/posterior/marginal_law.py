"""The law of methods that give marginals only."""

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, NamedTuple, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike

from permvi.posterior.laws import register_law
from permvi.posterior.marginals import check_marginals
from permvi.problem.sites import Layout

# Joint matchings of several sites are combined from this many of each site.
_TOP_PER_SITE = 32


class _Terms(NamedTuple):
    """Distinct matchings (terms, n) of a site and their weights (terms,), in decreasing order."""

    perms: np.ndarray
    weights: np.ndarray


@register_law
class MarginalsLaw:
    """A distribution over matchings with given marginals, sites independent of each other.

    Many joint distributions have the same marginals. This one is a mixture of few matchings, the
    Birkhoff-von Neumann decomposition. Its draws have the right marginals but are otherwise *not*
    draws of the posterior, so joint statements (which pairs occur together) mean nothing.

    Args:
        marginals: (n, m) or (sites, n, m) probabilities of pairs.
        p_unmatched_rows: (n,) or (sites, n), zeros by default.
        p_unmatched_cols: (m,) or (sites, m), zeros by default.
    """

    kind: ClassVar[str] = "marginals"

    def __init__(
        self,
        marginals: ArrayLike,
        p_unmatched_rows: ArrayLike | None = None,
        p_unmatched_cols: ArrayLike | None = None,
    ) -> None:
        self._given = check_marginals(marginals, p_unmatched_rows, p_unmatched_cols)
        self._layout = Layout.of("marginals", self._given.marginals.shape)

    @property
    def entropy(self) -> None:
        """None: many distributions have these marginals."""
        return

    def sample(self, num: int, rng: np.random.Generator) -> np.ndarray:
        """Draw from the mixture independently."""
        parts = []
        for terms in self._terms:
            cumulative = np.cumsum(terms.weights)
            places = rng.random(num) * cumulative[-1]
            parts.append(terms.perms[np.searchsorted(cumulative, places, side="right")])
        return np.stack(parts, axis=1).reshape(num, *self._layout.event_shape)

    def log_prob(self, perms: np.ndarray) -> NoReturn:
        """Raise an error: marginals have no joint density."""
        raise ValueError(
            "log_prob needs a method with an exact probability for each matching, got a posterior "
            "made of marginals; fit with method='exact' or 'sequential'."
        )

    def top(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the k matchings of largest weight, with several sites from the best 32 of each."""
        if len(self._terms) == 1:
            terms = self._terms[0]
            return terms.perms[:k], terms.weights[:k]
        perms = np.zeros((1, 0, self._layout.num_rows), dtype=np.int64)
        weights = np.ones(1)
        for terms in self._terms:
            few = _Terms(*(part[:_TOP_PER_SITE] for part in terms))
            old, new = np.divmod(np.arange(len(perms) * len(few.perms)), len(few.perms))
            products = weights[old] * few.weights[new]
            best = np.argsort(-products, kind="stable")[: max(k, _TOP_PER_SITE)]
            old, new, weights = old[best], new[best], products[best]
            perms = np.concatenate([perms[old], few.perms[new][:, None]], axis=1)
        return perms[:k], weights[:k]

    def weight(self, perm: np.ndarray) -> float:
        """Return the weight of a matching in the mixture."""
        sites = zip(perm.reshape(-1, self._layout.num_rows), self._terms, strict=True)
        shares = [terms.weights[(terms.perms == one).all(axis=1)].sum() for one, terms in sites]
        return float(np.prod(shares))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the marginals, which are decomposed anew after loading."""
        return self._given._asdict()

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Rebuild the law from its arrays."""
        return cls(**arrays)

    @cached_property
    def _terms(self) -> list[_Terms]:
        layout = self._layout
        n, m, S = layout.num_rows, layout.num_cols, layout.num_sites
        P, rows, cols = self._given
        sites = zip(P.reshape(S, n, m), rows.reshape(S, n), cols.reshape(S, m), strict=True)
        return [_decompose(*site) for site in sites]


def _decompose(P: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> _Terms:
    """Decompose one site's marginals (n, m) and unmatched probabilities (n,) and (m,)."""
    # Imported here because it loads numba.
    from permvi.posterior.birkhoff import decompose_birkhoff

    n, m = P.shape
    if n == m and not (rows.any() or cols.any()):
        square = P
    else:
        # A doubly stochastic matrix in which column m + i stands for row i being unmatched.
        square = np.block([[P, np.diag(rows)], [np.diag(cols), P.T]])
    perms, weights = decompose_birkhoff(square)
    corner = perms[:, :n].astype(np.int64)
    distinct, place = np.unique(np.where(corner < m, corner, -1), axis=0, return_inverse=True)
    total = np.bincount(place.ravel(), weights=weights, minlength=len(distinct))
    order = np.argsort(-total, kind="stable")
    return _Terms(distinct[order], total[order])
