r"""Maximum likelihood of a Plackett-Luce model from complete or partial rankings.

A ranking is a sequence of choices: its first item was chosen from all items, its second one from
the rest, and so on. With :math:`A_{kt}` the items left at choice t of ranking k,

.. math:: \ell(\theta) = \sum_k w_k \sum_t \Big[ \theta_{\sigma_{kt}}
          - \log \sum_{i \in A_{kt}} e^{\theta_i} \Big],

which is concave. Its maximum exists and is unique (up to a constant) exactly if the graph with an
edge from i to j where i was preferred to j is strongly connected (Hunter 2004, assumption 1).
"""

from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.sparse.csgraph import connected_components

from permvi._checks import one_of, whole

Unranked = Literal["absent", "below"]

_MAX_STEPS = 10_000
# The largest slope, per unit of weight, at which the fit has converged: the error of an item's
# expected number of wins, as a share of all choices.
_TOLERANCE = 1e-6


class RankingsFit(NamedTuple):
    """A Plackett-Luce model fitted to rankings.

    Attributes:
        log_worths: (n,) the log worths, with mean zero.
        log_likelihood: The weighted log likelihood of all rankings.
        converged: Whether the gradient vanishes, to 1e-6 of the total weight.
        num_steps: Steps of the optimiser.
    """

    log_worths: np.ndarray
    log_likelihood: float
    converged: bool
    num_steps: int


class _Choices(NamedTuple):
    """Rankings as choices."""

    # (K, L) the items of each ranking: the listed ones in order, then those below all; n is none.
    items: np.ndarray
    weights: np.ndarray  # (K, L) of each choice, zero where none was made
    num_items: int


def fit_rankings(
    rankings: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    num_items: int | None = None,
    unranked: Unranked = "absent",
) -> RankingsFit:
    """Fit a Plackett-Luce model by maximum likelihood, with L-BFGS in float64.

    A step costs O(K L). In this model every item has a strength; a Mallows model
    (`permvi.inference.mallows.fit_rankings`) has one consensus and one dispersion instead.

    Args:
        rankings: (K, L) integers: items, the best one first, with -1 at the end of rankings that
            list fewer than L items.
        weights: (K,) how often each ranking counts; once by default.
        num_items: n, for items from 0 to n - 1; the largest item listed plus one by default.
        unranked: What it means if a ranking does not list an item: "absent" (it did not take part)
            or "below" (it took part and came after all that are listed: top-k lists).

    Returns:
        The fit; pass ``log_worths`` to `permvi.distributions.PlackettLuce`.

    Raises:
        ValueError: Something is not a ranking, or the rankings do not determine all worths: some
            group of items always (or never) came before the others.

    References:
        Hunter (2004), MM algorithms for generalized Bradley-Terry models, Annals of Statistics.
    """
    one_of("unranked", unranked, get_args(Unranked))
    choices = _as_choices(rankings, weights, num_items, unranked)
    _check_connected(choices)
    total = choices.weights.sum()

    def loss(log_worths: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = _log_likelihood(choices, log_worths)
        return -value / total, -slope / total

    start = np.zeros(choices.num_items)
    options = {"maxiter": _MAX_STEPS, "maxfun": 2 * _MAX_STEPS, "ftol": 0.0, "gtol": 1e-9}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    value, slope = _log_likelihood(choices, found.x)
    return RankingsFit(
        found.x - found.x.mean(),
        float(value),
        bool(np.abs(slope).max() <= _TOLERANCE * total),
        int(found.nit),
    )


def _log_likelihood(choices: _Choices, log_worths: np.ndarray) -> tuple[float, np.ndarray]:
    """The log likelihood and its gradient (n,)."""
    items, weights, num_items = choices
    # Nothing has no worth.
    values = np.append(log_worths, -np.inf)[items]
    left = np.logaddexp.accumulate(values[:, ::-1], axis=1)[:, ::-1]
    chosen = weights > 0
    value = (weights * np.where(chosen, values - np.where(chosen, left, 0.0), 0.0)).sum()
    # An item loses its share of all choices up to the one that takes it.
    with np.errstate(divide="ignore"):
        share = np.where(chosen, np.log(weights) - np.where(chosen, left, 0.0), -np.inf)
    lost = np.exp(values + np.logaddexp.accumulate(share, axis=1))
    slope = np.bincount(items.ravel(), (weights - lost).ravel(), num_items + 1)
    return float(value), slope[:num_items]


def _as_choices(
    rankings: ArrayLike, weights: ArrayLike | None, num_items: int | None, unranked: Unranked
) -> _Choices:
    lists = np.asarray(rankings)
    if lists.ndim != 2 or 0 in lists.shape or lists.dtype.kind not in "iu":
        raise ValueError(
            f"rankings must be integers of shape (K, L), got dtype {lists.dtype} and shape "
            f"{lists.shape}."
        )
    n = int(lists.max()) + 1 if num_items is None else whole("num_items", num_items)
    listed = lists >= 0
    if not listed.any():
        raise ValueError("rankings must list some items, got none.")
    if lists.min() < -1 or lists.max() >= n:
        raise ValueError(
            f"rankings must hold items from 0 to {n - 1}, or -1, got {lists.min()} to "
            f"{lists.max()}."
        )
    if (listed[:, 1:] & ~listed[:, :-1]).any():
        raise ValueError("rankings must have -1 at their ends only, got one before an item.")
    counts = np.stack([np.bincount(row[row >= 0], minlength=n) for row in lists])
    if counts.max() > 1:
        raise ValueError("rankings must list an item once each, got one that is there twice.")
    each = _as_weights(weights, len(lists))
    items = np.where(listed, lists, n)
    if unranked == "below":
        # The items that are not listed, in any order, then padding.
        others = np.sort(np.where(counts == 0, np.arange(n), n), axis=1)
        items = np.concatenate([items, others], axis=1)
    made = np.pad(listed, ((0, 0), (0, items.shape[1] - listed.shape[1])))
    # In the order of places, padding at the end.
    order = np.argsort(items == n, axis=1, kind="stable")
    items, made = np.take_along_axis(items, order, 1), np.take_along_axis(made, order, 1)
    counted = each > 0
    return _Choices(items[counted], np.where(made, each[:, None], 0.0)[counted], n)


def _as_weights(weights: ArrayLike | None, num: int) -> np.ndarray:
    values = np.ones(num) if weights is None else np.asarray(weights, dtype=np.float64)
    if values.shape != (num,):
        raise ValueError(
            f"weights must have one entry for each of {num} rankings, got shape {values.shape}."
        )
    if not (np.isfinite(values) & (values >= 0)).all() or not values.any():
        raise ValueError("weights must be finite, at least 0 and not all 0, got something else.")
    return values


def _check_connected(choices: _Choices) -> None:
    """Raise ``ValueError`` if a group of items always or never came before the others."""
    items, weights, n = choices
    preferred = np.zeros((n + 1, n + 1), bool)
    for t in range(items.shape[1] - 1):
        chosen = weights[:, t] > 0
        winners = np.repeat(items[chosen, t], items.shape[1] - t - 1)
        preferred[winners, items[chosen, t + 1 :].ravel()] = True
    num, group = connected_components(preferred[:n, :n], directed=True, connection="strong")
    if num > 1:
        smallest = np.argmin(np.bincount(group))
        few = np.flatnonzero(group == smallest)[:5].tolist()
        raise ValueError(
            "rankings must connect all items (each group of items must have come before and after "
            f"others), got {num} groups, one of them with the items {few}."
        )
