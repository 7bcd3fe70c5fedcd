"""True marginals of large linear matching problems, by thousands of chains on an accelerator.

``python -m benchmarks.linear_truth_device run --out FOLDER`` computes the truths of ``GROUPS``, one
compressed file for each group, and needs NumPy, SciPy and JAX only. ``keep FILE ...`` puts them
where `benchmarks.linear_truth.truth` finds them.

A chain moves a hole. In a complete matching a random row gives up its column. A row h without a
column takes column j with probability ``q_hj = g_hj / sum_j g_hj``, where g are the weights
relative to an unused column; if row k held j, it is now the one without. The matching is complete
again when a row takes a free column, or stays unmatched where it may. With weight
``sum_j g_hj / n`` times that of the other pairs for the states without row h, each move and its
reverse balance, so complete matchings are visited in proportion to their weights. Marginals are
shares of these visits.

Half of the chains start from the best matching, half from the best of scores with three times
the Gumbel noise that would make them draws. The mean total variation between the halves is the
uncertainty.
"""

import argparse
import io
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.linear_problems import Problem, limits, problem_of, start

Task = tuple[str, int, int]  # family, size and seed

_POINTS = tuple(f"{kind}-{sigma}" for kind in ("plane", "space") for sigma in (0.1, 0.2, 0.3, 0.5))
_TABLES = ("gaussian-2", "gaussian-5", "cauchy")
_HARD = ("plane-0.4", "space-0.4", "partial-0.4")
# In order of importance.
GROUPS: dict[str, tuple[Task, ...]] = {
    "plane-1000": tuple((family, 1000, 61) for family in _POINTS[:4]),
    "space-1000": tuple((family, 1000, 61) for family in _POINTS[4:]),
    "tables-1000": tuple((family, 1000, 61) for family in _TABLES),
    "partial-1000": (("partial", 1000, 61), ("space-0.3", 1000, 0), ("partial", 1000, 0)),
    "all-300": (
        *((family, 300, 61) for family in (*_POINTS, *_TABLES, "partial", *_HARD)),
        ("space-0.3", 300, 0), ("partial", 300, 0),
    ),
    "all-100": (
        *((family, 100, 61) for family in (*_POINTS, *_TABLES, *_HARD[:2])),
        ("partial", 109, 61), ("partial-0.4", 109, 61), ("partial", 100, 0),
    ),
    "all-60": (
        *((family, n, 61) for n in (60, 30) for family in (*_POINTS, *_TABLES, "partial", *_HARD)),
        ("partial", 40, 0), ("partial", 24, 0),
    ),
}  # fmt: skip
# Seconds for a problem up to a number of items.
_SECONDS = {60: 1.5, 150: 2.5, 300: 5.0, 10**9: 20.0}
_CHAINS = 65_536
_BLOCK = 32
_HEAT = 3.0
_STARTS = 16
# A problem ends early when the halves differ by less than this share of the error allowed.
_ENOUGH = 0.05


class Visits(NamedTuple):
    """How often each half of the chains saw each pair in complete matchings."""

    counts: np.ndarray  # (2, n, m + 1), the last column for unmatched rows
    loops: float  # complete matchings per chain

    def marginals(self) -> np.ndarray:
        """Return the (n, m + 1) shares of both halves together."""
        both = self.counts.sum(0).astype(float)
        return both / both.sum(1, keepdims=True)

    def gap(self) -> float:
        """Return the mean total variation of a row between the halves."""
        shares = self.counts / np.maximum(self.counts.sum(2, keepdims=True), 1)
        return float(0.5 * np.abs(shares[0] - shares[1]).sum(1).mean())


class _State(NamedTuple):
    column: jax.Array  # (chains * n,), m if unmatched
    row: jax.Array  # (chains * (m + 1),), -1 if free; the last one is always free
    since: jax.Array  # (chains * n,), the number of loops when the row took its column
    head: jax.Array  # (chains,), the row without a column
    complete: jax.Array  # (chains,)
    loops: jax.Array  # (chains,)
    counts: jax.Array  # (2 * n * (m + 1),)


def visits(
    problem: Problem, seconds: float, chains: int, steps: int = 4096, seed: int = 0
) -> Visits:
    """Run chains for about so many seconds, of which the first quarter is not counted."""
    weights, unused = problem.grounded()
    n, m = len(weights), len(unused) - 1
    ladder = jnp.asarray(_ladder(weights, unused))
    state = _started(weights, unused, chains)
    key, total = jax.random.key(seed), np.zeros((2, n, m + 1), np.int64)
    rounds, counted = 0, False
    state, _ = _run(state, ladder, key, 1, (n, m))  # compile
    begin = time.monotonic()
    while True:
        state, found = _run(state, ladder, jax.random.fold_in(key, rounds), steps // _BLOCK, (n, m))
        found = np.asarray(found).reshape(2, n, m + 1)
        rounds, spent = rounds + 1, time.monotonic() - begin
        if counted:
            total += found
        elif spent >= seconds / 4:
            counted, loops = True, float(state.loops.mean())
            continue
        if counted and (spent >= seconds or _settled(total, n)):
            break
    return Visits(total, float(state.loops.mean()) - loops)


def _settled(total: np.ndarray, n: int) -> bool:
    return Visits(total, 0.0).gap() <= _ENOUGH * limits(n)[0]


def _ladder(weights: np.ndarray, unused: np.ndarray) -> np.ndarray:
    """Return cumulated probabilities of the columns for each row, in units of 2**-32.

    Their number is padded to a power of two. Where all columns are used, factors of columns
    change nothing but the time it takes, and Sinkhorn's make all columns equally wanted.
    """
    gains = weights - np.where(np.isfinite(unused), unused, 0.0)
    if not np.isfinite(unused[:-1]).any():
        gains += np.asarray(_column_factors(jnp.asarray(gains, jnp.float32)))
    shares = np.exp(gains - gains.max(1, keepdims=True))
    cumulated = np.cumsum(shares, axis=1)
    cumulated /= cumulated[:, -1:]
    width = 1 << (gains.shape[1] - 1).bit_length()
    ladder = np.full((len(gains), width), 2**32 - 1, np.uint32)
    ladder[:, : gains.shape[1]] = np.minimum(np.floor(cumulated * 2.0**32), 2**32 - 1)
    # A column that may not be taken has no width, wherever rounding ended.
    last = np.isfinite(gains).cumsum(1).argmax(1)
    ladder[np.arange(width) >= last[:, None]] = 2**32 - 1
    return ladder


@jax.jit
def _column_factors(gains: jax.Array) -> jax.Array:
    def sweep(_: Any, factors: jax.Array) -> jax.Array:
        rows = jax.nn.logsumexp(gains + factors, axis=1, keepdims=True)
        cols = jax.nn.logsumexp(gains - rows, axis=0)
        return jnp.where(jnp.isfinite(cols), -cols, 0.0)

    return jax.lax.fori_loop(0, 300, sweep, jnp.zeros(gains.shape[1], gains.dtype))


def _started(weights: np.ndarray, unused: np.ndarray, chains: int) -> _State:
    n, m = len(weights), len(unused) - 1
    best = start(weights, unused, None)
    others = [start(weights, unused, seed, _HEAT) for seed in range(_STARTS)]
    half = chains // 2
    column = np.array([best] * half + [others[k % _STARTS] for k in range(half)], np.int32)
    row = np.full((2 * half, m + 1), -1, np.int32)
    row[np.arange(2 * half)[:, None], column] = np.arange(n)
    row[:, m] = -1
    return _State(
        jnp.asarray(column.ravel()), jnp.asarray(row.ravel()), jnp.zeros(2 * half * n, jnp.int32),
        jnp.zeros(2 * half, jnp.int32), jnp.ones(2 * half, bool), jnp.zeros(2 * half, jnp.int32),
        jnp.zeros(2 * n * (m + 1), jnp.int32),
    )  # fmt: skip


@partial(jax.jit, static_argnums=4, donate_argnums=0)
def _run(
    state: _State, ladder: jax.Array, key: jax.Array, blocks: int, size: tuple[int, int]
) -> tuple[_State, jax.Array]:
    """Make ``blocks * _BLOCK`` moves; return the counts, and the state with none."""
    n, m = size
    chains = len(state.head)
    chain = jnp.arange(chains)
    of_half = jnp.where(chain < chains // 2, 0, n * (m + 1))
    move = partial(_move, ladder=ladder, chain=chain, of_half=of_half, size=size)

    def block(b: Any, state: _State) -> _State:
        bits = jax.random.bits(jax.random.fold_in(key, b), (_BLOCK, 2, chains), jnp.uint32)
        return jax.lax.scan(lambda s, x: (move(s, x), None), state, bits, unroll=8)[0]

    state = jax.lax.fori_loop(0, blocks, block, state)
    # Count what rows have held until now.
    rows = jnp.arange(n)
    placed = state.complete[:, None] | (rows != state.head[:, None])
    held = jnp.where(placed, state.loops[:, None] - state.since.reshape(-1, n), 0)
    cells = of_half[:, None] + rows * (m + 1) + state.column.reshape(-1, n)
    counts = state.counts.at[cells].add(held, mode="promise_in_bounds")
    since = jnp.repeat(state.loops, n)
    return state._replace(since=since, counts=jnp.zeros_like(counts)), counts


def _move(
    state: _State, bits: jax.Array, ladder: jax.Array, chain: jax.Array, of_half: jax.Array,
    size: tuple[int, int],
) -> _State:  # fmt: skip
    n, m = size
    put = {"mode": "promise_in_bounds", "unique_indices": True}
    uniform = (bits[0] >> 8).astype(jnp.float32) * 2.0**-24
    chosen = jnp.minimum((uniform * n).astype(jnp.int32), n - 1)
    head = jnp.where(state.complete, chosen, state.head)
    here = chain * n + head
    given_up, held = state.column[here], state.loops - state.since[here]
    free = jnp.where(state.complete, given_up, m)
    row = state.row.at[chain * (m + 1) + free].set(-1, **put)
    taken = _search(ladder, head, jnp.minimum(bits[1], jnp.uint32(2**32 - 2)))
    other = row[chain * (m + 1) + taken]
    ends = other < 0
    there = chain * n + jnp.maximum(other, 0)
    held_by_other = state.loops - state.since[there]
    cells = jnp.concatenate(
        [of_half + head * (m + 1) + given_up, of_half + jnp.maximum(other, 0) * (m + 1) + taken]
    )
    times = jnp.concatenate([jnp.where(state.complete, held, 0), jnp.where(ends, 0, held_by_other)])
    return _State(
        state.column.at[here].set(taken, **put),
        row.at[chain * (m + 1) + taken].set(jnp.where(taken == m, -1, head), **put),
        state.since.at[here].set(state.loops, **put),
        jnp.where(ends, head, other),
        ends,
        state.loops + ends,
        state.counts.at[cells].add(times, mode="promise_in_bounds"),
    )


def _search(ladder: jax.Array, rows: jax.Array, level: jax.Array) -> jax.Array:
    """Return the first column whose cumulated probability exceeds the level."""
    width = ladder.shape[1]
    flat, at, step = ladder.ravel(), jnp.zeros_like(rows), width // 2
    while step:
        at = jnp.where(flat[rows * width + at + step - 1] <= level, at + step, at)
        step //= 2
    return at


def run(out: Path, most_seconds: float, names: Sequence[str]) -> None:
    """Compute truths in order of importance until the time is over; write a file for each group."""
    begin = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    print(jax.__version__, jax.devices(), flush=True)
    for name in names:
        kept: dict[str, Any] = {}
        for task in GROUPS[name]:
            if time.monotonic() - begin > most_seconds:
                print("no time left for", task, flush=True)
                continue
            since, problem = time.monotonic(), problem_of(*task)
            seconds = next(s for n, s in _SECONDS.items() if task[1] <= n)
            found = visits(problem, seconds, _CHAINS)
            label = ":".join(map(str, task))
            kept[f"{label}:counts"] = found.counts.sum(0)
            kept[f"{label}:gap"] = found.gap()
            kept[f"{label}:check"] = problem.scores[:, ::7].sum(1)
            print(
                label, f"gap {found.gap():.5f}", f"loops {found.loops:.1f}",
                f"{time.monotonic() - since:.1f} s", flush=True,
            )  # fmt: skip
        if kept:
            file = io.BytesIO()
            np.savez_compressed(file, **kept)
            (out / f"{name}.npz").write_bytes(file.getbuffer())


def keep(files: Sequence[Path]) -> Iterator[str]:
    """Put truths where `benchmarks.linear_truth.truth` finds them."""
    from benchmarks.linear_truth import Truth, store

    for path in files:
        with np.load(path) as found:
            for name in found.files:
                label, _, what = name.rpartition(":")
                if what != "counts":
                    continue
                family, n, seed = label.split(":")
                problem = problem_of(family, int(n), int(seed))
                np.testing.assert_allclose(problem.scores[:, ::7].sum(1), found[f"{label}:check"])
                counts = found[name].astype(float)
                shares = counts / counts.sum(1, keepdims=True)
                gap = float(found[f"{label}:gap"])
                true = Truth(shares[:, :-1], shares[:, -1], None, "worms", gap)
                store(problem, true)
                yield f"{label} {gap:.5f} {'usable' if true.usable() else 'refused'}"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help=run.__doc__)
    running.add_argument("--out", type=Path, required=True, help="folder for the files")
    running.add_argument("--seconds", type=float, default=450, help="no problem begins later")
    running.add_argument("--groups", nargs="+", default=list(GROUPS), help="names of groups")
    keeping = commands.add_parser("keep", help=keep.__doc__)
    keeping.add_argument("files", nargs="+", type=Path)
    given = parser.parse_args()
    if given.command == "run":
        run(given.out, given.seconds, given.groups)
    else:
        print("\n".join(keep(given.files)))


if __name__ == "__main__":
    main()
