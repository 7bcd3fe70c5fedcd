"""Calibration and accuracy of the models of rankings.

    python -m benchmarks.rankings --out results/rankings

*calibration*: 200 sets of ballots are drawn from each model, its parameters from their priors.
``coverage`` is the share of items whose true rank lies in its 95 % interval, and ``chance`` what
the posterior itself says this share should be, which is above 95 % since ranks are whole numbers.

*references*: noisy rankings of 10 to 20 items. ``error`` is the largest total variation of an
item's rank between the answer and a chain written for this purpose, which exchanges two items at a
time and moves all parameters by random walks; ``reference`` is that between two halves of it. For
Cayley's distance up to 11 items all orders are summed over; beyond, there are several such chains,
for powers of the likelihood, that pass their states on to each other.
"""

import argparse
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
from scipy.special import logsumexp

from benchmarks.run import machine
from permvi._rank import interval
from permvi.experiments.results import Table, summary_row, write_rows, write_summary, write_tables
from permvi.inference.rankings import solve
from permvi.inference.rankings.families import FAMILIES, Family
from permvi.models import Rankings

Row = dict[str, Any]
NUM_VOTERS = 5
SIZES = (10, 14, 16, 18, 20)
_STEPS = 10_000_000
_WORTH_STEPS = 6_000_000
# All orders of so many items are listed for Cayley's distance. Beyond: steps of all its chains,
# and the powers of the likelihood.
_LISTED = 11
_TEMPERED_STEPS = 150_000_000
_POWERS = np.array([0.0, 0.25, 0.35, 0.42, 0.48, 0.53, 0.58, 0.64, 0.72, 0.82, 1.0])


def drawn(model: str, n: int, rng: np.random.Generator) -> tuple[Rankings, np.ndarray]:
    """Draw parameters from their priors, ballots given these, and return the true ranks, too."""
    if model in ("plackett_luce", "davidson"):
        log_worths = np.exp(rng.normal()) * rng.normal(size=n)
        true = np.argsort(np.argsort(-log_worths))
        if model == "plackett_luce":
            keys = log_worths + rng.gumbel(size=(NUM_VOTERS, n))
            return Rankings(np.argsort(-keys, axis=1).tolist()), true
        return Rankings(_compared(log_worths, math.exp(rng.normal()), rng)), true
    true = rng.permutation(n)
    if model == "generalised_mallows":
        thetas = rng.exponential(size=n - 1)
        orders, codes = _listed(model, n)
        ballots = orders[_draw(-codes @ thetas, rng)]
    else:
        orders, lengths = _listed(model, n)
        # The prior of Kendall's dispersion, in units of the mean distance of random rankings.
        theta = rng.exponential() * (n * (n - 1) / 4) / lengths.mean()
        ballots = orders[_draw(-theta * lengths, rng)]
    # Ballots around the identity give the rank of the item with each true rank.
    return Rankings.from_ranks(ballots[:, true]), true


@lru_cache
def _listed(model: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """List all orders, and their distances from the identity, place by place if each has one."""
    orders = np.array(list(itertools.permutations(range(n))))
    if model == "generalised_mallows":
        return orders, np.array([_choices(order) for order in orders])
    return orders, np.array([_length(model, order) for order in orders])


def _draw(log_weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    weights = np.exp(log_weights - logsumexp(log_weights))
    return rng.choice(len(weights), size=NUM_VOTERS, p=weights / weights.sum())


def _length(model: str, ranks: np.ndarray) -> float:
    """The distance of ranks from the identity."""
    places = np.arange(len(ranks))
    if model == "mallows":
        return sum(a > b for a, b in itertools.combinations(ranks.tolist(), 2))
    if model == "cayley":
        seen: set[int] = set()
        cycles = 0
        for place in places.tolist():
            cycles += place not in seen
            while place not in seen:
                seen.add(place)
                place = int(ranks[place])
        return len(ranks) - cycles
    return float((np.abs(ranks - places) ** (1 if model == "footrule" else 2)).sum())


def _choices(ranks: np.ndarray) -> list[int]:
    """(n-1,) how many of the items that are left come before the item chosen at each place."""
    order = np.argsort(ranks).tolist()
    return [sum(later < item for later in order[k:]) for k, item in enumerate(order[:-1])]


def _compared(log_worths: np.ndarray, tie: float, rng: np.random.Generator) -> list[Any]:
    """Draw a comparison of each pair of items; some end in a tie."""
    found: list[Any] = []
    for i, j in itertools.combinations(range(len(log_worths)), 2):
        a, b = np.exp(log_worths[[i, j]])
        weights = np.array([a, b, tie * math.sqrt(a * b)])
        result = rng.choice(3, p=weights / weights.sum())
        found.append(([i, j], [j, i], [(i, j)])[result])
    return found


def calibration(given: argparse.Namespace) -> Iterator[Row]:
    """Compare intervals with the truth."""
    for model in given.models:
        covered, chances, verdicts = [], [], []
        start = time.process_time()
        for seed in range(given.sets):
            rankings, true = drawn(model, given.items, np.random.default_rng([given.first, seed]))
            # Items that no comparison or ballot mentions cannot be missing here.
            order = [int(name) for name in rankings.items]
            answer = solve.answer(model, rankings.ballots, seed)
            verdicts.append(answer.diagnostics.verdict == "trust")
            for row, item in zip(np.asarray(answer.solved.marginals), order, strict=True):
                low, high = interval(row, 0.95)
                covered.append(float(low <= true[item] <= high))
                chances.append(float(row[low : high + 1].sum()))
        by_set = np.reshape(covered, (given.sets, -1)).mean(axis=1)
        yield {
            "part": "calibration", "model": model, "n": given.items, "coverage": np.mean(covered),
            "se": by_set.std() / math.sqrt(given.sets), "chance": np.mean(chances),
            "trusted": np.mean(verdicts), "cpu_s": time.process_time() - start,
        }  # fmt: skip


def references(given: argparse.Namespace) -> Iterator[Row]:
    """Compare answers with long chains."""
    for n, model in itertools.product(given.sizes, given.models):
        rng = np.random.default_rng([given.first, n])
        keys = np.arange(n) + 0.3 * n * rng.normal(size=(40, n))
        ballots = Rankings.from_ranks(np.argsort(np.argsort(keys, axis=1), axis=1)).ballots
        try:
            solve.answer(model, ballots, 1)  # compiled functions are loaded before the clock runs
        except ValueError:
            continue
        start = time.process_time()
        answer = solve.answer(model, ballots, 0)
        seconds = time.process_time() - start
        halves = np.stack([_reference(model, ballots, answer, k, given.scale) for k in (1, 2)])
        true, found = halves.mean(axis=0), np.asarray(answer.solved.marginals)
        yield {
            "part": "references", "model": model, "n": n,
            "error": 0.5 * np.abs(found - true).sum(axis=1).max(),
            "reference": 0.5 * np.abs(halves[0] - halves[1]).sum(axis=1).max(),
            "verdict": answer.diagnostics.verdict, "method": answer.method, "cpu_s": seconds,
        }  # fmt: skip


def _reference(model: str, ballots: Any, answer: Any, seed: int, scale: float) -> np.ndarray:
    if model == "cayley":
        family = FAMILIES[model](ballots)
        grid = np.linspace(math.log(1e-4), math.log(100.0), 3_000)
        if family.num_items <= _LISTED:
            counted = _list_orders(*family.exchanged)
            energies = np.arange(len(counted))
            densities = logsumexp(family.log_joint(grid) - energies[:, None] * np.exp(grid), axis=1)
            found = np.einsum("e,eik->ik", np.exp(densities - densities.max()), counted)
            return found / found.sum(axis=1, keepdims=True)
        prior = math.log(family.rate) + grid - family.rate * np.exp(grid)
        steps = int(scale * _TEMPERED_STEPS) // len(_POWERS)
        return _walk_tempered(
            *family.exchanged, prior, family.log_joint(grid)[0] - prior, grid[0],
            grid[1] - grid[0], _POWERS, steps, steps // 10, seed,
        )  # fmt: skip
    if model in FAMILIES:
        family = FAMILIES[model](ballots)
        return _reference_of_orders(family, answer, seed, int(scale * _STEPS))
    orders = np.argsort(ballots.levels, axis=1)
    steps = int(scale * _WORTH_STEPS)
    return _walk_worths(orders, ballots.counts.astype(float), steps, steps // 10, seed)


def _reference_of_orders(family: Family, answer: Any, seed: int, steps: int) -> np.ndarray:
    """Run the chain of orders with a table of the log density of log theta."""
    grid = np.linspace(math.log(1e-6), math.log(100.0), 3_000)
    table = family.log_joint(grid)
    start = np.argsort(np.random.default_rng(seed).permutation(family.num_items))
    return _walk_orders(
        family.pairs, family.places, table, grid[0], grid[1] - grid[0],
        np.log(answer.solved.thetas[:, 0]), start, steps, steps // 10, seed,
    )  # fmt: skip


@numba.njit(cache=True)
def _energies(pairs, places, order, found):
    """Sum the costs of an order."""
    n = len(order)
    for j in range(len(pairs)):
        found[j] = 0.0
        for a in range(n):
            for b in range(a + 1, n):
                found[j] += pairs[j, order[a], order[b]]
    for a in range(n):
        found[0] += places[order[a], a]


@numba.njit(cache=True)
def _walk_orders(pairs, places, table, low, step, u, order, steps, burn, seed):
    """(n, n) shares of the time that items spend at places; u is the log of theta, (J,)."""
    np.random.seed(seed)  # noqa: NPY002
    n, num = len(order), len(pairs)
    u = u.copy()
    energy, other = np.zeros(num), np.zeros(num)
    _energies(pairs, places, order, energy)
    shares = np.zeros((n, n))
    for t in range(steps):
        a, b = np.random.randint(n), np.random.randint(n)  # noqa: NPY002
        order[a], order[b] = order[b], order[a]
        _energies(pairs, places, order, other)
        change = 0.0
        for j in range(num):
            change += np.exp(u[j]) * (energy[j] - other[j])
        if np.log(np.random.random()) < change:  # noqa: NPY002
            energy[:] = other
        else:
            order[a], order[b] = order[b], order[a]
        j = t % num
        new = u[j] + 0.3 * np.random.normal()  # noqa: NPY002
        old_at, new_at = (u[j] - low) / step, (new - low) / step
        if 0 <= new_at < table.shape[1] - 1:
            k, m = int(old_at), int(new_at)
            was = table[j, k] + (old_at - k) * (table[j, k + 1] - table[j, k])
            will = table[j, m] + (new_at - m) * (table[j, m + 1] - table[j, m])
            gain = will - was - energy[j] * (np.exp(new) - np.exp(u[j]))
            if np.log(np.random.random()) < gain:  # noqa: NPY002
                u[j] = new
        if t >= burn and t % n == 0:
            for place in range(n):
                shares[order[place], place] += 1.0
    return shares / shares.sum() * n


@numba.njit(cache=True)
def _distance(ballot, order):
    """Cayley's distance: the number of items less that of cycles."""
    left = (1 << len(order)) - 1
    found = len(order)
    for first in range(len(order)):
        if left >> first & 1:
            found -= 1
            place = first
            while left >> place & 1:
                left ^= 1 << place
                place = ballot[order[place]]
    return found


@numba.njit(cache=True)
def _on_one_cycle(ballot, order, a, b):
    """Whether two places are on one cycle, so that exchanging their items makes two of it."""
    place = ballot[order[a]]
    while place != a and place != b:
        place = ballot[order[place]]
    return place == b


@numba.njit(cache=True)
def _list_orders(ballots, counts):
    """(E, n, n) in how many orders of each energy, a whole number, item i is at place k.

    All orders follow from each other by exchanges (Heap 1963).
    """
    num, n = ballots.shape
    found = np.zeros((int(counts.sum()) * n, n, n))
    order, stack = np.arange(n), np.zeros(n, np.int64)
    level = 0
    while level < n:
        if level == 0 or stack[level] < level:
            if level:
                other = stack[level] if level % 2 else 0
                order[other], order[level] = order[level], order[other]
                stack[level] += 1
                level = 0
            energy = 0.0
            for r in range(num):
                energy += counts[r] * _distance(ballots[r], order)
            for place in range(n):
                found[round(energy), order[place], place] += 1.0
            level = 1
        else:
            stack[level] = 0
            level += 1
    return found


@numba.njit(cache=True)
def _linear(table, place):
    """Interpolate; nothing is outside of the table."""
    k = int(place)
    if place < 0 or k >= len(table) - 1:
        return -np.inf
    return table[k] + (place - k) * (table[k + 1] - table[k])


@numba.njit(cache=True)
def _walk_tempered(ballots, counts, prior, table, low, step, powers, steps, burn, seed):
    """(n, n) shares of the time that items spend at places in the chain of power 1."""
    np.random.seed(seed)  # noqa: NPY002
    num, n = ballots.shape
    K = len(powers)
    u, energy, shares = np.zeros(K), np.zeros(K), np.zeros((n, n))
    orders = np.empty((K, n), np.int64)
    for k in range(K):
        orders[k] = np.random.permutation(n)  # noqa: NPY002
        for r in range(num):
            energy[k] += counts[r] * _distance(ballots[r], orders[k])
    for t in range(steps):
        for k in range(K):
            order = orders[k]
            a, b = np.random.randint(n), np.random.randint(n)  # noqa: NPY002
            change = 0.0
            for r in range(num):
                change -= counts[r] if _on_one_cycle(ballots[r], order, a, b) else -counts[r]
            if a != b and np.log(np.random.random()) < -powers[k] * np.exp(u[k]) * change:  # noqa: NPY002
                order[a], order[b] = order[b], order[a]
                energy[k] += change
            new = u[k] + 0.3 * np.random.normal()  # noqa: NPY002
            was, will = (u[k] - low) / step, (new - low) / step
            gain = _linear(prior, will) - _linear(prior, was)
            change = _linear(table, will) - _linear(table, was)
            change -= energy[k] * (np.exp(new) - np.exp(u[k]))
            if np.log(np.random.random()) < gain + powers[k] * change:  # noqa: NPY002
                u[k] = new
        if t % n == 0:
            for k in range(t // n % 2, K - 1, 2):
                one = _linear(table, (u[k] - low) / step) - energy[k] * np.exp(u[k])
                two = _linear(table, (u[k + 1] - low) / step) - energy[k + 1] * np.exp(u[k + 1])
                gain = (powers[k] - powers[k + 1]) * (two - one)
                if np.log(np.random.random()) < gain:  # noqa: NPY002
                    u[k], u[k + 1] = u[k + 1], u[k]
                    energy[k], energy[k + 1] = energy[k + 1], energy[k]
                    for place in range(n):
                        orders[k, place], orders[k + 1, place] = (
                            orders[k + 1, place],
                            orders[k, place],
                        )
            if t >= burn:
                for place in range(n):
                    shares[orders[K - 1, place], place] += 1.0
    return shares / shares.sum() * n


@numba.njit(cache=True)
def _walk_worths(orders, counts, steps, burn, seed):
    """(n, n) shares of the ranks of items by their log worths, which move one at a time."""
    np.random.seed(seed)  # noqa: NPY002
    n = orders.shape[1]
    worths, log_sigma = np.zeros(n), 0.0
    shares, value = np.zeros((n, n)), -np.inf
    ranked = np.zeros(n, np.int64)
    for t in range(steps):
        i = t % (n + 1)
        old = log_sigma if i == n else worths[i]
        if i == n:
            log_sigma += 0.3 * np.random.normal()  # noqa: NPY002
        else:
            worths[i] += 0.5 * np.random.normal()  # noqa: NPY002
        new = -0.5 * log_sigma**2 - n * log_sigma - 0.5 * (worths**2).sum() * np.exp(-2 * log_sigma)
        for r in range(len(orders)):
            left = 0.0
            for place in range(n - 1, -1, -1):
                item = orders[r, place]
                left += np.exp(worths[item])
                new += counts[r] * (worths[item] - np.log(left))
        if np.log(np.random.random()) < new - value:  # noqa: NPY002
            value = new
        elif i == n:
            log_sigma = old
        else:
            worths[i] = old
        if t >= burn and i == n:
            ranked[:] = np.argsort(-worths)
            for place in range(n):
                shares[ranked[place], place] += 1.0
    return shares / shares.sum() * n


PARTS = {"calibration": calibration, "references": references}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--models", nargs="+", default=list(solve.MODELS))
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--sets", type=int, default=200, help="sets of ballots of each model")
    parser.add_argument("--items", type=int, default=6, help="items of these")
    parser.add_argument("--first", type=int, default=0, help="seed")
    parser.add_argument("--scale", type=float, default=1.0, help="length of reference chains")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for part in given.parts:
        for row in PARTS[part](given):
            rows.append(row)
            print(
                row,
                flush=True,
            )
            write_rows(given.out, rows)
    write_summary(given.out, [
        summary_row("rankings", row["model"], {"part": row["part"], "n": row["n"]}, metric,
                    [float(row[metric])], seconds=row["cpu_s"])
        for row in rows for metric in ("coverage", "chance", "error") if metric in row
    ])  # fmt: skip
    header = ["model", ">items", ">coverage", ">± se", ">expected", ">trusted", ">CPU s"]
    lines = [
        [r["model"], str(r["n"]), f"{r['coverage']:.3f}", f"{r['se']:.3f}", f"{r['chance']:.3f}",
         f"{r['trusted']:.2f}", f"{r['cpu_s']:.0f}"] for r in rows if r["part"] == "calibration"
    ]  # fmt: skip
    tables = [Table("Calibration", header, lines)] if lines else []
    header = ["model", ">items", "method", ">error", ">reference", "verdict", ">CPU s"]
    lines = [
        [r["model"], str(r["n"]), r["method"], f"{r['error']:.4f}", f"{r['reference']:.4f}",
         r["verdict"], f"{r['cpu_s']:.1f}"] for r in rows if r["part"] == "references"
    ]  # fmt: skip
    tables += [Table("References", header, lines)] if lines else []
    write_tables(given.out, tables)
    print(f"on {machine()}")


if __name__ == "__main__":
    main()
