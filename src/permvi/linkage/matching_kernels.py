r"""Compiled sums over all matchings of many small graphs.

A matching of a graph is a set of edges that share no vertex; its weight is the product of
:math:`e^{w}` over its edges. Vertices are decided one by one. Deciding v means to leave it alone or
to match it with a vertex that comes later, so all that the rest has to know is which of the later
neighbours of decided vertices, the *frontier*, are taken. Sums over its subsets give the total
weight Z in time :math:`O(\sum_t 2^{k_t} d_t)` for frontiers of :math:`k_t` vertices. The graph need
not be bipartite, so linking two tables and finding duplicates in one are the same computation.

Since the empty matching has weight 1 and taking vertices away never adds matchings, a term that
underflows is also negligible in the end. Sums that could overflow are taken of logarithms.
"""

import math

import numpy as np

from permvi._compiled import compiled

# Above this bound on log Z, weights could overflow (float64 ends at e^709).
_LOG_LIMIT = 600.0
# The step of the second difference of log Z that gives the variance of the number of matches.
_STEP = 0.01


@compiled()
def solve_graphs(
    edge_ends: np.ndarray,
    num_vertices: np.ndarray,
    tails: np.ndarray,
    heads: np.ndarray,
    weights: np.ndarray,
    max_states: int,
    max_work: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Solve many graphs exactly, as far as each is affordable.

    Args:
        edge_ends: (C+1,) where the edges of each graph begin, and the number of all edges.
        num_vertices: (C,) the number of vertices of each graph.
        tails: (E,) one end of each edge, from 0 in each graph.
        heads: (E,) the other end.
        weights: (E,) log weights, possibly -inf.
        max_states: The most subsets to keep for one graph.
        max_work: The most steps for one sum over one graph.

    Returns:
        (E,) probabilities of the edges; (E,) whether an edge is in the matching of largest weight;
        (C,) log Z; (C,) the variance of the number of edges in a matching; (C,) whether the graph
        was solved.
    """
    num = len(num_vertices)
    p, best = np.zeros(len(tails)), np.zeros(len(tails), np.bool_)
    log_z, variance, solved = np.zeros(num), np.zeros(num), np.zeros(num, np.bool_)
    buffer = np.empty(1024)
    for c in range(num):
        lo, hi = edge_ends[c], edge_ends[c + 1]
        a, b, w = tails[lo:hi], heads[lo:hi], weights[lo:hi]
        if hi - lo == 1:
            p[lo] = 1.0 / (1.0 + math.exp(-w[0])) if w[0] > -700.0 else 0.0
            best[lo] = w[0] > 0.0
            log_z[c] = max(w[0], 0.0) + math.log1p(math.exp(-abs(w[0])))
            variance[c] = p[lo] * (1.0 - p[lo])
            solved[c] = True
            continue
        starts, edges = _incidence(num_vertices[c], a, b)
        order, at = _order(starts, edges, a, b, max_states, max_work)
        if len(order) == 0:
            continue
        steps = _plan(order, at, starts, edges, a, b)
        layers = steps[6]
        if layers[-1] > len(buffer):
            buffer = np.empty(layers[-1] * 2)
        bound = _bound(order, at, starts, edges, a, b, w)
        logs = bound > _LOG_LIMIT
        less = _forward(steps, w - _STEP, buffer, logs)
        more = _forward(steps, w + _STEP, buffer, logs)
        total = _forward(steps, w, buffer, logs)
        _backward(steps, w, buffer, total, logs, p[lo:hi])
        _best(steps, w, buffer, best[lo:hi])
        log_z[c] = total
        variance[c] = max((less - 2.0 * total + more) / _STEP**2, 0.0)
        solved[c] = True
    return p, best, log_z, variance, solved


@compiled()
def _incidence(n: int, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where the edges of each vertex begin (n+1,), and the edges by vertex (2E,)."""
    starts = np.zeros(n + 1, np.int64)
    for e in range(len(a)):
        starts[a[e] + 1] += 1
        starts[b[e] + 1] += 1
    for v in range(n):
        starts[v + 1] += starts[v]
    place, edges = starts.copy(), np.empty(2 * len(a), np.int64)
    for e in range(len(a)):
        edges[place[a[e]]] = e
        place[a[e]] += 1
        edges[place[b[e]]] = e
        place[b[e]] += 1
    return starts, edges


@compiled()
def _order(
    starts: np.ndarray,
    edges: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    max_states: int,
    max_work: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the vertices in the order of decision: next is what grows the frontier least.

    Also returns the place of each vertex. Both are empty if the sums would be too large.
    """
    n = len(starts) - 1
    order, at = np.empty(n, np.int64), np.full(n, n, np.int64)
    reached, fresh = np.zeros(n, np.bool_), np.zeros(n, np.int64)
    for v in range(n):
        # New frontier vertices if v is decided; v itself leaves the frontier.
        fresh[v] = starts[v + 1] - starts[v]
    width, states, work = 0, 1.0, 0.0
    for t in range(n):
        choice, least, fewest = -1, n + 1, n + 1
        for v in range(n):
            if at[v] < n:
                continue
            growth = fresh[v] - reached[v]
            if growth < least or (growth == least and fresh[v] < fewest):
                choice, least, fewest = v, growth, fresh[v]
        at[choice], order[t] = t, choice
        if reached[choice]:
            width -= 1
        else:
            # Not a new vertex for its neighbours any more.
            for k in range(starts[choice], starts[choice + 1]):
                fresh[a[edges[k]] + b[edges[k]] - choice] -= 1
        degree = 0
        for k in range(starts[choice], starts[choice + 1]):
            u = a[edges[k]] + b[edges[k]] - choice
            if at[u] < n:
                continue
            degree += 1
            if not reached[u]:
                reached[u] = True
                width += 1
                for j in range(starts[u], starts[u + 1]):
                    fresh[a[edges[j]] + b[edges[j]] - u] -= 1
        if width > 40:
            return order[:0], at[:0]
        states += 2.0**width
        work += 2.0**width * (1 + degree)
        if states > max_states or work > max_work:
            return order[:0], at[:0]
    return order, at


@compiled()
def _plan(
    order: np.ndarray,
    at: np.ndarray,
    starts: np.ndarray,
    edges: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the steps of the sums.

    For each of the n steps: the bit of the vertex in the frontier before it, or -1; the width of
    that frontier; where its edges to later vertices begin in the next two arrays, which have edges
    and the bits of their ends in the frontier after the step; the vertex; and where its layer
    begins in the buffer, with the number of all states at the end.
    """
    n = len(order)
    bits, widths = np.full(n, -1, np.int64), np.zeros(n + 1, np.int64)
    firsts, layers = np.zeros(n + 1, np.int64), np.zeros(n + 2, np.int64)
    used, targets = np.empty(len(a), np.int64), np.empty(len(a), np.int64)
    frontier = np.empty(n, np.int64)
    width = count = 0
    for t in range(n):
        v = order[t]
        widths[t] = width
        layers[t + 1] = layers[t] + (1 << width)
        for q in range(width):
            if frontier[q] == v:
                bits[t] = q
        if bits[t] >= 0:
            for q in range(bits[t], width - 1):
                frontier[q] = frontier[q + 1]
            width -= 1
        for k in range(starts[v], starts[v + 1]):
            e = edges[k]
            u = a[e] + b[e] - v
            if at[u] < t:
                continue
            place = -1
            for q in range(width):
                if frontier[q] == u:
                    place = q
            if place < 0:
                frontier[width] = u
                place = width
                width += 1
            used[count], targets[count] = e, place
            count += 1
        firsts[t + 1] = count
    layers[n + 1] = layers[n] + 1
    return bits, widths, firsts, used, targets, order, layers


@compiled()
def _bound(
    order: np.ndarray,
    at: np.ndarray,
    starts: np.ndarray,
    edges: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    w: np.ndarray,
) -> float:
    """Return an upper bound on log Z: each vertex takes its best later partner, in each way."""
    bound = 0.0
    for t in range(len(order)):
        v, top, degree = order[t], 0.0, 1.0
        for k in range(starts[v], starts[v + 1]):
            e = edges[k]
            if at[a[e] + b[e] - v] > t:
                top = max(top, w[e])
                degree += 1.0
        bound += top + _STEP + math.log(degree)
    return bound


@compiled()
def _without(state: int, bit: int) -> int:
    """Return a subset with one bit cut out."""
    low = state & ((1 << bit) - 1)
    return ((state >> (bit + 1)) << bit) | low


@compiled()
def _plus(x: float, y: float) -> float:
    """Return log(e^x + e^y)."""
    if x < y:
        x, y = y, x
    if y == -np.inf:
        return x
    return x + math.log1p(math.exp(y - x))


@compiled()
def _forward(steps: tuple, w: np.ndarray, buffer: np.ndarray, logs: np.bool_) -> float:
    """Fill the buffer with sums over the decided vertices by frontier; return log Z."""
    bits, widths, firsts, used, targets, order, layers = steps
    n = len(order)
    zero = -np.inf if logs else 0.0
    x = w if logs else np.exp(w)
    buffer[: layers[n + 1]] = zero
    buffer[0] = 0.0 if logs else 1.0
    for t in range(n):
        here, there = layers[t], layers[t + 1]
        for state in range(1 << widths[t]):
            f = buffer[here + state]
            if f == zero:
                continue
            rest = state if bits[t] < 0 else _without(state, bits[t])
            taken = bits[t] >= 0 and (state >> bits[t]) & 1
            if logs:
                buffer[there + rest] = _plus(buffer[there + rest], f)
            else:
                buffer[there + rest] += f
            if taken:
                continue
            for k in range(firsts[t], firsts[t + 1]):
                if (rest >> targets[k]) & 1:
                    continue
                goal = there + (rest | (1 << targets[k]))
                if logs:
                    buffer[goal] = _plus(buffer[goal], f + x[used[k]])
                else:
                    buffer[goal] += f * x[used[k]]
    last = buffer[layers[n]]
    return last if logs else math.log(last)


@compiled()
def _backward(
    steps: tuple,
    w: np.ndarray,
    buffer: np.ndarray,
    total: float,
    logs: np.bool_,
    p: np.ndarray,
) -> None:
    """Write the probabilities of the edges, given the buffer of `_forward`."""
    bits, widths, firsts, used, targets, order, layers = steps
    n = len(order)
    # Sums over the vertices still to be decided, divided by Z.
    after = np.full(1, -total if logs else math.exp(-total))
    zero = -np.inf if logs else 0.0
    x = w if logs else np.exp(w)
    for t in range(n - 1, -1, -1):
        before = np.empty(1 << widths[t])
        for state in range(len(before)):
            rest = state if bits[t] < 0 else _without(state, bits[t])
            taken = bits[t] >= 0 and (state >> bits[t]) & 1
            value = after[rest]
            if not taken:
                f = buffer[layers[t] + state]
                for k in range(firsts[t], firsts[t + 1]):
                    if (rest >> targets[k]) & 1:
                        continue
                    more = after[rest | (1 << targets[k])]
                    if logs:
                        more += x[used[k]]
                        value = _plus(value, more)
                        if f > zero:
                            p[used[k]] += math.exp(f + more)
                    else:
                        more *= x[used[k]]
                        value += more
                        p[used[k]] += f * more
            before[state] = value
        after = before


@compiled()
def _best(steps: tuple, w: np.ndarray, buffer: np.ndarray, best: np.ndarray) -> None:
    """Mark the edges of the matching of largest weight; the buffer is overwritten."""
    bits, widths, firsts, used, targets, order, layers = steps
    n = len(order)
    buffer[layers[n]] = 0.0
    for t in range(n - 1, -1, -1):
        here, there = layers[t], layers[t + 1]
        for state in range(1 << widths[t]):
            rest = state if bits[t] < 0 else _without(state, bits[t])
            value = buffer[there + rest]
            if bits[t] < 0 or not (state >> bits[t]) & 1:
                for k in range(firsts[t], firsts[t + 1]):
                    if not (rest >> targets[k]) & 1:
                        goal = there + (rest | (1 << targets[k]))
                        value = max(value, buffer[goal] + w[used[k]])
            buffer[here + state] = value
    state = 0
    for t in range(n):
        there = layers[t + 1]
        rest = state if bits[t] < 0 else _without(state, bits[t])
        taken = bits[t] >= 0 and (state >> bits[t]) & 1
        value, state = buffer[layers[t] + state], rest
        if taken or value == buffer[there + rest]:
            continue
        for k in range(firsts[t], firsts[t + 1]):
            if not (rest >> targets[k]) & 1:
                goal = rest | (1 << targets[k])
                if buffer[there + goal] + w[used[k]] == value:
                    best[used[k]] = True
                    state = goal
                    break
