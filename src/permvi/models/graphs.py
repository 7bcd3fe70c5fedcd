"""Matching the nodes of two graphs, a model with a quadratic log density."""

import math
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from permvi import _checks
from permvi._jax import pytree
from permvi.models import _arguments, _predictive
from permvi.models.labels import Names, frame_labels
from permvi.models.linear import sum_of_matched, sum_of_pairs


@pytree(
    leaves=("A", "B", "scale", "linear_scores", *_arguments.ARRAYS),
    static=("noise", "labels"),
)
class GraphMatching(_arguments.Constrained):
    r"""A matching of the nodes of two graphs with a quadratic log density.

    .. math::
        \log p(X) = \text{scale} \langle A, X B X^\top \rangle + \langle C, X \rangle,
        \qquad \langle A, X B X^\top \rangle = \sum_{ik} A_{ik} B_{\pi(i) \pi(k)}

    with ``X[i, j] = 1`` where ``perm[i] = j``: node i of A is node j of B, and the edge from i to k
    meets the edge from ``perm[i]`` to ``perm[k]``. Edges may be directed and weighted, and loops
    (diagonal entries) count like any other edge. Unmatched nodes have no edges. This is the
    quadratic assignment problem of Koopmans and Beckmann (1957) at a temperature; a negative
    ``scale`` minimises costs.

    Args:
        A: (n, n) weights of the edges among the items. The index of a DataFrame names the items.
        B: (m, m) weights of the edges among the labels. The index of a DataFrame names the labels.
        scale: Weight of the agreement of the edges, a number; negative where edges repel.
        scores: (n, m) log weights of single pairs, C above, kept as ``linear_scores``; zero by
            default.
        mask: Allowed pairs; see `LinearMatching` for this and all arguments that follow.

    Raises:
        ValueError: Shapes do not fit, or something is not finite.
        TypeError: Something is of the wrong kind.
    """

    A: Any
    B: Any
    scale: Any
    # Not called "scores", which would mean that the log density is linear.
    linear_scores: Any
    # How edges are observed, if that is known: "gaussian" or "flips", see the class methods.
    noise: str | None

    def __init__(
        self,
        A: Any,
        B: Any,
        scale: Any = 1.0,
        scores: Any = None,
        *,
        mask: Any = None,
        known: Any = None,
        labels: Any = None,
        row_unmatched: Any = None,
        col_unmatched: Any = None,
        prior_scores: Any = None,
    ) -> None:
        self.A, self.B = _edges("A", A), _edges("B", B)
        self.scale = _arguments.finite("scale", _arguments.real("scale", scale, (0,)))
        self.noise = None
        table = (self.A.shape[0], self.B.shape[0])
        given = mask, known, labels, row_unmatched, col_unmatched, prior_scores
        self._constrain(table, (_names("A", A), _names("B", B)), *given)
        self.linear_scores = None if scores is None else _linear(scores, table, self.mask)

    @classmethod
    def gaussian(
        cls, observed: Any, reference: Any, scale: float, scores: Any = None, **constraints: Any
    ) -> Self:
        r"""Make the model of edges observed with noise, :math:`Y = X W X^\top + \sigma \epsilon`.

        :math:`\log p(Y \mid X) = -\lVert Y - X W X^\top \rVert^2 / (2 \sigma^2) - n^2 \log
        (\sqrt{2 \pi} \sigma)`, which is quadratic since the norm of :math:`X W X^\top` is that of
        W. All n by n entries count as independent observations. In undirected graphs, which list
        each edge twice, a ``scale`` larger by :math:`\sqrt 2` counts it once. Between permutations
        the density is that of the class, not of the norm.

        Args:
            observed: (n, n) weights Y of the edges among the items.
            reference: (n, n) weights W of the edges among the labels.
            scale: The noise's :math:`\sigma`, positive.
            scores: (n, n) log weights of single pairs, which are added.
            **constraints: ``mask``, ``known``, ``labels`` and ``prior_scores``, see the class.

        Raises:
            ValueError: The graphs differ in size (then the norm depends on X), or the scale is not
                positive.
        """
        Y, W = _observed(observed, reference, constraints, "Gaussian noise")
        sigma = _arguments.finite("scale", _arguments.real("scale", scale, (0,)))
        if _checks.is_concrete(sigma) and not sigma > 0:
            raise ValueError(f"scale must be positive, got {sigma}.")
        n = len(Y)
        xp: Any = np if _checks.is_concrete(Y, W, sigma) else jnp
        norms = (Y**2).sum() + (W**2).sum()
        constant = -norms / (2 * sigma**2) - n**2 * xp.log(math.sqrt(2 * math.pi) * sigma)
        model = cls(observed, reference, sigma**-2, scores, **constraints)
        return model._with_noise("gaussian", constant)

    @classmethod
    def flips(
        cls,
        observed: Any,
        reference: Any,
        probability: float,
        scores: Any = None,
        **constraints: Any,
    ) -> Self:
        r"""Make the model of edges each of which is flipped with probability f.

        Both graphs have entries 0 and 1 and no loops. Of T pairs of nodes, D have an edge in one
        graph only, and :math:`\log p(Y \mid X) = D \log f + (T - D) \log(1 - f)`. If both graphs
        are undirected, each edge counts once. This says more than the class alone, for which edges
        may be lost more often than made or the reverse, so that `Posterior.check` finds a wrong
        probability with fewer edges.

        Args:
            observed: (n, n) edges Y among the items.
            reference: (n, n) edges among the labels.
            probability: The probability f of a flip, between 0 and 1.
            scores: (n, n) log weights of single pairs, which are added.
            **constraints: ``mask``, ``known``, ``labels`` and ``prior_scores``, see the class.

        Raises:
            ValueError: The graphs differ in size, have other entries or loops, or the probability
                is not between 0 and 1.
        """
        Y, W = _observed(observed, reference, constraints, "flipped edges")
        for name, graph in (("observed", Y), ("reference", W)):
            if not _is_binary(graph) or np.diagonal(graph).any():
                raise ValueError(f"{name} must have entries 0 and 1 and no loops, got others.")
        f = float(
            _arguments.finite("probability", _arguments.real("probability", probability, (0,)))
        )
        if not 0 < f < 1:
            raise ValueError(f"probability must be between 0 and 1, got {f}.")
        # How often the sums below count each pair.
        times = 2 if _is_undirected(Y, W) else 1
        log_odds, total = math.log1p(-f) - math.log(f), len(Y) * (len(Y) - 1) // times
        constant = total * math.log1p(-f) - log_odds * float(Y.sum() + W.sum()) / times
        model = cls(observed, reference, 2 * log_odds / times, scores, **constraints)
        return model._with_noise("flips", constant)

    def _with_noise(self, noise: str, constant: Any) -> Self:
        """Say how edges are observed, and add a constant to the log density of every matching."""
        n = self.shape[0]
        # Every matching has n pairs, so each pair takes an equal share.
        shares = (np if _checks.is_concrete(constant) else jnp).full((n, n), constant / n)
        scores = self.linear_scores
        self.linear_scores = shares if scores is None else shares + scores
        self.noise = noise
        return self

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of items and labels."""
        return self.A.shape[-1], self.B.shape[-1]

    @property
    def num_sites(self) -> int:
        """The number of permutations, 1."""
        return 1

    @property
    def quadratic(self) -> tuple[Any, Any, Any]:
        """The (n, n), (m, m) and (n, m) arrays of ``<A, X B X'> + <C, X>``, scale included."""
        C = np.zeros(self.shape) if self.linear_scores is None else self.linear_scores
        return self.scale * self.A, self.B, C

    def log_density(self, X: ArrayLike) -> jax.Array:
        """Return ``scale <A, X B X'> + <C, X>``: (..., n, m) -> (...)."""
        X = jnp.asarray(X)
        mapped = X @ jnp.asarray(self.B) @ jnp.swapaxes(X, -1, -2)
        value = jnp.asarray(self.scale) * sum_of_pairs(self.A, mapped, 1)
        if self.linear_scores is None:
            return value
        return value + sum_of_pairs(self.linear_scores, X, 1)

    def log_density_of(self, perm: ArrayLike) -> jax.Array:
        """Return log densities (...) of permutations (..., n), -1 for unmatched, in O(n^2) each."""
        perm = jnp.asarray(perm)
        mapped = _entries(self.B, perm[..., :, None], perm[..., None, :])
        value = jnp.asarray(self.scale) * sum_of_pairs(self.A, mapped, 1)
        if self.linear_scores is None:
            return value
        return value + sum_of_matched(self.linear_scores, perm, 1)

    def delta(self, perm: ArrayLike, i: ArrayLike, j: ArrayLike) -> jax.Array:
        """Return what swapping the columns of rows i and j adds to the log density, in O(n).

        ``perm`` holds (..., n) integers, -1 for unmatched. i, j and the result are (...).
        """
        perm, i, j = jnp.asarray(perm), jnp.asarray(i), jnp.asarray(j)
        batch = jnp.broadcast_shapes(perm.shape[:-1], i.shape, j.shape)
        perm = jnp.broadcast_to(perm, (*batch, perm.shape[-1]))
        i, j = (jnp.broadcast_to(row, batch)[..., None] for row in (i, j))
        a, b = (jnp.take_along_axis(perm, row, axis=-1) for row in (i, j))
        A, B, k = jnp.asarray(self.A), self.B, jnp.arange(perm.shape[-1])
        outwards = (A[i, k] - A[j, k]) * (_entries(B, b, perm) - _entries(B, a, perm))
        inwards = (A[k, i] - A[k, j]) * (_entries(B, perm, b) - _entries(B, perm, a))
        others = jnp.where((k != i) & (k != j), outwards + inwards, 0).sum(axis=-1)
        loops = (A[i, i] - A[j, j]) * (_entries(B, b, b) - _entries(B, a, a))
        between = (A[i, j] - A[j, i]) * (_entries(B, b, a) - _entries(B, a, b))
        value = jnp.asarray(self.scale) * (others + (loops + between)[..., 0])
        if self.linear_scores is None:
            return value
        C = self.linear_scores
        gained = _entries(C, i, b) + _entries(C, j, a) - _entries(C, i, a) - _entries(C, j, b)
        return value + gained[..., 0]

    @property
    def num_predicted(self) -> int:
        """The number of pairs of nodes."""
        return self.shape[0] ** 2

    def predictive_tests(self, draws: np.ndarray, latents: Any) -> _predictive.Findings | str:
        """Test whether edges agree as much as the scale says, given matchings (num, n).

        With Gaussian noise the residuals of the edges are tested. With flips, the number of pairs
        of nodes that disagree is binomial. Other graphs of zeros and ones are tested by the number
        of edges they share, whose law given the numbers of edges is Fisher's noncentral
        hypergeometric one; its log odds ratio is the scale, or twice the scale if the graphs are
        undirected. That allows for edges that are lost more often than made. Weighted graphs have
        no noise to compare with.
        """
        del latents
        A, B = np.asarray(self.A), np.asarray(self.B)
        undirected = _is_undirected(A, B)
        matched = draws >= 0
        pairs = np.triu_indices(len(A), 1) if undirected else np.where(~np.eye(len(A), dtype=bool))
        both = matched[:, pairs[0]] & matched[:, pairs[1]]
        mapped = B[draws[:, pairs[0]], draws[:, pairs[1]]]
        weight = float(self.scale) * (2 if undirected else 1)
        if self.noise == "gaussian":
            z = np.where(both, (A[pairs] - mapped) * np.sqrt(weight), np.nan)
            return _predictive.residual_tests(
                _by_node(z, pairs, len(A)), known_scale=True, what="differences of edges"
            )
        if not (_is_binary(A) and _is_binary(B)):
            return "weighted edges have no noise to compare with (see GraphMatching.gaussian)"
        a, b = A[pairs] * both, mapped * both
        return _disagreement(a, b, both, weight, flips=self.noise == "flips")


def _by_node(z: np.ndarray, pairs: Any, n: int) -> np.ndarray:
    """Arrange residuals of pairs of nodes (num, E) by their first node: (num, 1, n, n)."""
    table = np.full((len(z), 1, n, n), np.nan)
    table[:, 0, pairs[0], pairs[1]] = z
    return table


def _disagreement(
    a: np.ndarray, b: np.ndarray, present: np.ndarray, log_odds_ratio: float, *, flips: bool
) -> _predictive.Findings:
    """Test the number of edges in one graph only, given the pairs of nodes (num, E) of each.

    Args:
        a: The edges of one graph in each draw.
        b: Those of the other graph.
        present: Whether both nodes are matched.
        log_odds_ratio: What each shared edge adds to the log density.
        flips: Whether edges are lost and made with the same probability.
    """
    from scipy.stats import binom, nchypergeom_fisher

    total, first, second = (round(float(part.sum(axis=1).mean())) for part in (present, a, b))
    shared = (a * b).sum(axis=1)
    if flips:
        # The number of disagreeing pairs.
        found, least, most = first + second - 2 * shared, 0, total
        law = binom(total, 1 / (1 + math.exp(log_odds_ratio / 2)))
    else:
        found, least, most = shared, max(0, first + second - total), min(first, second)
        odds = math.exp(min(max(log_odds_ratio, -50), 50))
        law = nchypergeom_fisher(total, first, second, odds) if most > least else None
    if law is None or most == least:
        return _predictive.Findings([], [])
    mean, variance = (float(moment) for moment in law.stats(moments="mv"))
    value = round(_predictive.averaged(found, mean, variance)) if variance > 0 else mean
    p = _predictive.improbability(law, int(np.clip(value, least, most)), least, most)
    seen, expected = float(found.mean()), mean
    if not flips:
        seen, expected = (first + second - 2 * x for x in (seen, expected))
    more = "more" if seen > expected else "fewer"
    finding = (
        f"{seen:.3g} edges are in one graph only, {more} than the {expected:.3g} that the "
        f"{'probability of a flip' if flips else 'scale'} predicts"
    )
    return _predictive.Findings([_predictive.Finding("edges that disagree", p, finding)], [])


def _is_binary(graph: np.ndarray) -> bool:
    return bool(np.isin(graph, (0.0, 1.0)).all())


def _is_undirected(A: np.ndarray, B: np.ndarray) -> bool:
    return bool((A == A.T).all() and (B == B.T).all())


def _observed(
    observed: Any, reference: Any, constraints: dict[str, Any], what: str
) -> tuple[Any, Any]:
    """Check two graphs of one size, in which no node stays unmatched."""
    Y, W = _edges("observed", observed), _edges("reference", reference)
    if Y.shape != W.shape:
        raise ValueError(
            f"observed and reference must have the same shape, got shapes {Y.shape} and {W.shape}."
        )
    for name in ("row_unmatched", "col_unmatched"):
        if constraints.get(name) is not None:
            raise ValueError(f"{name} must be None for graphs with {what}, got one.")
    return Y, W


def _entries(table: Any, rows: jax.Array, cols: jax.Array) -> jax.Array:
    """Return ``table[rows, cols]``, zero where an index is -1."""
    present = (rows >= 0) & (cols >= 0)
    return jnp.where(present, jnp.asarray(table)[jnp.maximum(rows, 0), jnp.maximum(cols, 0)], 0)


def _edges(name: str, value: Any) -> Any:
    array = _arguments.real(name, value, (2,))
    if array.shape[0] != array.shape[1]:
        raise ValueError(f"{name} must be square, got shape {array.shape}.")
    return _arguments.finite(name, array)


def _linear(scores: Any, table: tuple[int, int], mask: np.ndarray | None) -> Any:
    array = _arguments.real("scores", scores, (2,))
    if array.shape != table:
        raise ValueError(f"scores must have shape {table}, got shape {array.shape}.")
    return _arguments.scores("scores", array, mask)


def _names(name: str, value: Any) -> Names:
    """Return the names of the nodes of a DataFrame, whose rows and columns must agree."""
    rows, cols = frame_labels(value)
    if rows != cols:
        raise ValueError(
            f"{name} must name its rows and columns alike, got {rows!r:.40} and {cols!r:.40}."
        )
    return rows
