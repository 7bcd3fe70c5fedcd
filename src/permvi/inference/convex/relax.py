"""Quadratic matching problems by all relaxations that apply."""

from typing import NamedTuple

import numpy as np

from permvi.inference.convex.matrices import maximise_quadratic
from permvi.inference.convex.networks import Permutahedron
from permvi.inference.convex.vector_form import vector_form
from permvi.inference.convex.vectors import minimise_quadratic
from permvi.inference.map import Quadratic


class Relaxed(NamedTuple):
    """The result of relaxations.

    Attributes:
        X: (n, m) the solution of the relaxation with the lower bound.
        bound: An upper bound on the function over all matchings.
        perm: (n,) the best matching found by rounding, -1 for unmatched.
        value: The function there.
        by_network: Whether a sorting network gave the bound.
        num_evaluations: How many values and gradients were computed.
    """

    X: np.ndarray
    bound: float
    perm: np.ndarray
    value: float
    by_network: bool
    num_evaluations: int


def relax_quadratic(
    quadratic: Quadratic, mask: np.ndarray | None = None, max_iter: int = 200
) -> Relaxed:
    """The better of two relaxations of ``max <A, X B X'> + <C, X>``, in bound and in matching.

    Over the Birkhoff polytope always; over the permutahedron, which is much smaller, where the
    problem is to order a vector and nothing is forbidden.

    Args:
        quadratic: The function.
        mask: (n, m) booleans, True where allowed, pruned; or None.
        max_iter: The most Frank-Wolfe steps in each.
    """
    found = maximise_quadratic(quadratic, mask, max_iter)
    form = None if mask is not None else vector_form(quadratic)
    if form is None:
        X, bound, perm, value, num = found
        return Relaxed(X, bound, perm, value, by_network=False, num_evaluations=num)
    ordered = minimise_quadratic(-form.Q, -form.c, form.values, max_iter=max_iter)
    bound, value = form.constant - ordered.bound, form.constant - ordered.value
    by_network = bound < found.bound
    better = value > found.value
    return Relaxed(
        Permutahedron(form.values).mixture(ordered.x) if by_network else found.X,
        min(bound, found.bound),
        ordered.perm if better else found.perm,
        max(value, found.value),
        by_network,
        found.num_evaluations + ordered.num_evaluations,
    )
