r"""Compiled chains over the matchings of one graph, which need not be bipartite.

The chain of Jerrum and Sinclair (1989) for monomers and dimers: choose an edge; if it is in the
matching, remove it; if both of its ends are free, add it; if one of them is free, the edge replaces
the one that holds the other end. Moves are accepted by the rule of Metropolis. Where weights are
large it would hardly ever remove an edge, so several copies run at inverse temperatures
:math:`1 = \beta_0 > \beta_1 > \dots` and exchange their states.
"""

import math

import numpy as np

from permvi._compiled import compiled


@compiled()
def run_chain(
    tails: np.ndarray,
    heads: np.ndarray,
    weights: np.ndarray,
    betas: np.ndarray,
    holds: np.ndarray,
    num_sweeps: int,
    rng: np.random.Generator,
    sums: np.ndarray,
    best: np.ndarray,
) -> tuple[float, float, float]:
    """Run one ladder of chains.

    Args:
        tails: (E,) one end of each edge.
        heads: (E,) the other end.
        weights: (E,) finite log weights.
        betas: (K,) inverse temperatures, the first of which is 1.
        holds: (K, n) the edge that each vertex is matched by, -1 for none; changed in place.
        num_sweeps: The number of sweeps, each of E steps at every temperature.
        rng: The random numbers.
        sums: (E,) to which each sweep adds the probability of each edge given all others.
        best: (E,) the best matching of this call, written in place.

    Returns:
        The sum and the sum of squares over sweeps of the number of edges, and the log weight of the
        best matching.
    """
    num_edges, num_vertices = len(tails), holds.shape[1]
    alone = 1.0 / (1.0 + np.exp(-weights))
    energy = np.zeros(len(betas))
    for k in range(len(betas)):
        for v in range(num_vertices):
            if holds[k, v] >= 0:
                energy[k] += 0.5 * weights[holds[k, v]]
    count = squares = 0.0
    highest = -1.0
    for _ in range(num_sweeps):
        for k in range(len(betas)):
            energy[k] += _sweep(tails, heads, weights, betas[k], holds[k], rng)
            if energy[k] > highest:
                highest = energy[k]
                best[:] = False
                for v in range(num_vertices):
                    if holds[k, v] >= 0:
                        best[holds[k, v]] = True
        for k in range(len(betas) - 1):
            gain = (betas[k] - betas[k + 1]) * (energy[k + 1] - energy[k])
            if gain >= 0.0 or math.log(rng.random()) < gain:
                for v in range(num_vertices):
                    holds[k, v], holds[k + 1, v] = holds[k + 1, v], holds[k, v]
                energy[k], energy[k + 1] = energy[k + 1], energy[k]
        num = 0
        for v in range(num_vertices):
            num += holds[0, v] >= 0
        count += num / 2
        squares += (num / 2) ** 2
        for e in range(num_edges):
            f, g = holds[0, tails[e]], holds[0, heads[e]]
            if (f < 0 or f == e) and (g < 0 or g == e):
                sums[e] += alone[e]
    return count, squares, highest


@compiled()
def _sweep(
    tails: np.ndarray,
    heads: np.ndarray,
    weights: np.ndarray,
    beta: float,
    holds: np.ndarray,
    rng: np.random.Generator,
) -> float:
    """Do E steps at one temperature; return how much the log weight has grown."""
    grown = 0.0
    for _ in range(len(tails)):
        e = rng.integers(0, len(tails))
        u, v = tails[e], heads[e]
        f, g = holds[u], holds[v]
        if f == e:
            if _accept(-beta * weights[e], rng):
                holds[u] = holds[v] = -1
                grown -= weights[e]
        elif f < 0 and g < 0:
            if _accept(beta * weights[e], rng):
                holds[u] = holds[v] = e
                grown += weights[e]
        elif f < 0 or g < 0:
            old = max(f, g)
            if _accept(beta * (weights[e] - weights[old]), rng):
                holds[tails[old]] = holds[heads[old]] = -1
                holds[u] = holds[v] = e
                grown += weights[e] - weights[old]
    return grown


@compiled()
def _accept(gain: float, rng: np.random.Generator) -> bool:
    return gain >= 0.0 or rng.random() < math.exp(gain)
