"""Linkage at scale: time and memory of `permvi match --pairs` over numbers of candidate pairs.

    python -m benchmarks.linkage time --pairs 100000 1000000 10000000 --workers 0 1 2
    python -m benchmarks.linkage kills --pairs 300000 --times 10
    python -m benchmarks.linkage scaling --pairs 3000000 --workers 1 2
    python -m benchmarks.linkage quality --seeds 6 --first 1000
    python -m benchmarks.linkage large --seeds 10

``time`` runs the command on generated Parquet files and measures wall and CPU seconds and the peak
of memory of the process with its workers; 0 workers are the threads of one process. ``kills`` ends
runs by SIGKILL at random moments after their first answer, resumes them, and compares all files
with those of an undisturbed run; it also kills a Dask worker.
``scaling`` times the solving, and the whole, on Dask workers that have started before.
``quality`` compares probabilities with the truth of the generated linkage of ``examples``.
``large`` compares the probabilities of components of 200 records, which are too entangled for exact
sums, with runs of 25 times as many steps, and these with chains of another kind: those of Jerrum
and Sinclair over matchings of any graph.
"""

import argparse
import hashlib
import importlib
import importlib.util
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "linkage"
# Records of a component are 2 to 30, uniformly, and this many pairs for each of them.
SIZES = range(2, 31)
PAIRS_PER_RECORD = 2.75
# Components of 200 records for each million pairs.
LARGE, NUM_LARGE = 200, 10


def components(num, size, rng):
    """Left and right records (from 0) and whether they match, for `num` components of one size."""
    n = size // 2
    m = size - n
    cells = np.zeros((num, n, m), bool)
    path = np.arange(n)
    cells[:, path, path] = True
    cells[:, path, (path + 1) % m if m == n else path + 1] = size > 2
    if m == n:
        cells[:, n - 1, 0] = size == 4
    flat = cells.reshape(num, -1)
    extra = max(0, min(n * m, round(PAIRS_PER_RECORD * size)) - int(flat[0].sum()))
    if extra:
        keys = rng.random(flat.shape, np.float32)
        keys[flat] = 2.0
        chosen = np.argpartition(keys, extra - 1, axis=1)[:, :extra]
        np.put_along_axis(flat, chosen, values=True, axis=1)
    which, cell = np.nonzero(flat)
    left, right = np.divmod(cell, m)
    matched = rng.random((num, n)) < 0.8
    return (
        which * n + left,
        which * m + right,
        (left == right) & matched[which, left],
        num * n,
        num * m,
    )


def generate(path, num_pairs, seed=0):
    """Write pairs with Splink's columns in random order; return the numbers of records."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(seed)
    per_round = sum(min((s // 2) * (s - s // 2), round(PAIRS_PER_RECORD * s)) for s in SIZES)
    rounds = max(1, round((num_pairs - NUM_LARGE * num_pairs / 1e6 * 550) / per_round))
    plan = [(rounds, size) for size in SIZES] + [(round(NUM_LARGE * num_pairs / 1e6), LARGE)]
    parts, lefts, rights = [], 0, 0
    for num, size in plan:
        if not num:
            continue
        a, b, match, n, m = components(num, size, rng)
        parts.append((a + lefts, b + rights, match))
        lefts, rights = lefts + n, rights + m
    left, right, match = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = rng.permutation(len(left))
    left, right, match = left[order], right[order], match[order]
    weight = rng.normal(np.where(match, 5.0, -4.0), 3.5)
    names = [pa.array(rng.permutation(k)) for k in (lefts, rights)]
    table = pa.table(
        {
            "match_weight": weight,
            "unique_id_l": pa.compute.binary_join_element_wise(
                "a", names[0].take(pa.array(left)).cast(pa.string()), "-"
            ),
            "unique_id_r": pa.compute.binary_join_element_wise(
                "b", names[1].take(pa.array(right)).cast(pa.string()), "-"
            ),
            "gamma_name": rng.integers(0, 4, len(left)).astype(np.int8),
        }
    )
    pq.write_table(table, path, compression="zstd")
    return lefts, rights, len(left)


def command(source, out, *options):
    start = [sys.executable, "-c", "from permvi.cli import main; main()"]
    return [*start, "match", "--pairs", str(source), "--out", str(out), *options]


def peak_of_tree(pid):
    """Resident bytes of a process and all that it has started."""
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        try:
            status = Path(f"/proc/{one}/status").read_text()
            for task in Path(f"/proc/{one}/task").iterdir():
                waiting += [int(k) for k in (task / "children").read_text().split()]
        except OSError:
            continue
        total += next((1024 * int(x.split()[1]) for x in status.splitlines() if "VmRSS" in x), 0)
    return total


def measured(arguments, out):
    """Run a command; return wall and CPU seconds and the peak of memory in GB.

    Solving lasts from the first answer in the folder ``out`` to the first table. What was written
    before is brought to the disk first, so that the command does not wait for it.
    """
    os.sync()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    peak = 0
    first = last = None
    while process.poll() is None:
        peak = max(peak, peak_of_tree(process.pid))
        now = time.perf_counter()
        first = first or (now if answers(out) else None)
        last = last or (now if (out / ".work" / "final").is_dir() else None)
        # Seldom, since looking takes time on a core that the command uses.
        time.sleep(0.5)
    if process.returncode:
        raise SystemExit(f"{arguments} ended with status {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(cpu, 1),
        "seconds_solving": round(last - first, 1) if first and last else None,
        "peak_gb": round(peak / 1e9, 2),
    }


def digest(folder):
    """A hash of all files of a folder, with their names."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return found.hexdigest()


def time_all(sizes, workers, folder):
    rows = []
    for num in sizes:
        source = folder / f"pairs-{num}.parquet"
        lefts, rights, pairs = generate(source, num)
        first = None
        for count in workers:
            out = folder / f"out-{num}-{count}"
            row = {"pairs": pairs, "left": lefts, "right": rights, "workers": count}
            options = ("--workers", str(count)) if count else ()
            row |= measured(command(source, out, "--quiet", *options), out)
            found = digest(out)
            first = first or found
            row["same_bytes_as_first"] = found == first
            rows.append(row)
            print(row, flush=True)
            shutil.rmtree(out)
    return rows


def scale_all(num, workers, folder):
    import permvi as pv
    from permvi._cluster import connected
    from permvi.linkage import solve

    source = folder / "pairs.parquet"
    generate(source, num)
    rows = []
    for count in workers:
        with connected(count, None) as client:
            # Loads what workers need.
            pv.match_pairs({"id_l": [1, 1], "id_r": ["a", "b"], "log_odds": [0.0, 1.0]},
                           client=client)  # fmt: skip
            client.run(importlib.import_module, solve.__name__)
            times = {}

            def note(what, done, total, times=times):
                times.setdefault(what.split(",")[0], time.perf_counter())

            began = time.perf_counter()
            pv.match_pairs(source, client=client, progress=note)
            row = {
                "workers": count,
                "pairs": num,
                "seconds": round(time.perf_counter() - began, 1),
                "seconds_reading": round(times["linking"] - began, 1),
                "seconds_solving": round(times["writing"] - times["linking"], 1),
            }
        rows.append(row)
        print(row, flush=True)
    return rows


def answers(out):
    return len(list(out.glob(".work/answer-*.parquet")))


def started(source, out, *options):
    """Start a run, and return it when it has kept its first answer."""
    process = subprocess.Popen(command(source, out, "--quiet", *options))
    while process.poll() is None and not answers(out):
        time.sleep(0.005)
    return process


def kill_all(num, times, folder, seed=0):
    source = folder / "pairs.parquet"
    generate(source, num)
    process = started(source, folder / "whole")
    began, most = time.perf_counter(), 0
    while process.poll() is None:
        most = max(most, answers(folder / "whole"))
        time.sleep(0.005)
    duration = time.perf_counter() - began
    wanted = digest(folder / "whole")
    draw = random.Random(seed)
    rows = []
    for k in range(times):
        out = folder / f"killed-{k}"
        process = started(source, out)
        # From the first answer to the end of an undisturbed run, writing included.
        moment = draw.uniform(0.0, 1.0) * duration
        time.sleep(moment)
        process.send_signal(signal.SIGKILL)
        process.wait()
        row = {"seconds_after_first_answer": round(moment, 2), "answers": most}
        row |= {"answers_kept": answers(out), "complete": (out / "summary.json").is_file()}
        measured(command(source, out, "--quiet"), out)
        rows.append(row | {"same": digest(out) == wanted})
        print(rows[-1], flush=True)
        shutil.rmtree(out)
    out = folder / "worker"
    process = started(source, out, "--workers", "2")
    workers = [k for k in descendants(process.pid) if "spawn_main" in cmdline(k)]
    os.kill(workers[-1], signal.SIGKILL)
    row = {"answers_when_worker_was_killed": answers(out), "answers": most}
    row |= {"status": process.wait(), "same": digest(out) == wanted}
    rows.append(row)
    print(rows[-1])
    return rows


def descendants(pid):
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        try:
            for task in Path(f"/proc/{one}/task").iterdir():
                waiting += [int(k) for k in (task / "children").read_text().split()]
        except OSError:
            continue
        found.append(one)
    return found[1:]


def cmdline(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def quality(first, count):
    spec = importlib.util.spec_from_file_location(
        "linkage_at_scale", ROOT / "examples" / "linkage_at_scale.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = [module.measure(seed) for seed in range(first, first + count)]
    for row in rows:
        print(json.dumps(row))
    return rows


def large(first, count, steps=40_000_000, sweeps=2_000, chains=8):
    from permvi.inference.linear import Candidates, LinearOptions, solve_linear
    from permvi.linkage.chain_kernels import run_chain
    from permvi.linkage.solve import ONE_TO_ONE, Task, solve

    long = LinearOptions(max_size=0, max_states=0, num_steps=steps, num_chains=chains)
    rows = []
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        tails, heads, match, n, m = components(1, LARGE, rng)
        weights = np.log(2.0) * rng.normal(np.where(match, 5.0, -4.0), 3.5)
        ends = np.array([0, len(weights)])
        sizes = np.array([n]), np.array([n + m])
        arrays = tails, heads + n, weights
        began = time.process_time()
        found = solve(Task(0, ONE_TO_ONE, np.arange(1), ends, *sizes, *arrays, seed))
        seconds = time.process_time() - began
        # `components` lists pairs by row and column, as `Candidates` wants them.
        problem = Candidates(tails, heads, weights, np.zeros(n), np.zeros(m))
        truth = solve_linear(problem, long, seed + 1_000_000).pairs
        betas = np.geomspace(1.0, 1.5 / np.abs(weights).max(), 6)
        means = []
        for generator in rng.spawn(chains):
            holds = np.full((len(betas), n + m), -1)
            # The first fifth warms the chain up.
            for number in (sweeps // 5, sweeps):
                sums, best = np.zeros(len(weights)), np.zeros(len(weights), bool)
                run_chain(*arrays, betas, holds, number, generator, sums, best)
            means.append(sums / sweeps)
        other = np.mean(means, axis=0)
        error = np.std(means, axis=0, ddof=1) / np.sqrt(chains)
        off = np.abs(other - truth)
        known = error > 1e-4
        rows.append({
            "seed": seed,
            "pairs": len(weights),
            "largest_difference": float(np.abs(found.p - truth).max()),
            "mean_difference": float(np.abs(found.p - truth).mean()),
            "largest_difference_of_other_chains": float(off.max()),
            "their_root_mean_square_z": float(np.sqrt(np.mean((off[known] / error[known]) ** 2))),
            "verdict": int(found.verdict[0]),
            "stated_error": float(found.error[0]),
            "cpu_seconds": round(seconds, 2),
        })  # fmt: skip
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("time", "kills", "scaling", "quality", "large"))
    parser.add_argument("--pairs", type=int, nargs="+", default=[100_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1])
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--out", type=Path, help="write the rows as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if given.what == "time":
            rows = time_all(given.pairs, given.workers, Path(name))
        elif given.what == "scaling":
            rows = scale_all(given.pairs[0], given.workers, Path(name))
        elif given.what == "kills":
            rows = kill_all(given.pairs[0], given.times, Path(name))
        elif given.what == "large":
            rows = large(given.first, given.seeds)
        else:
            rows = quality(given.first, given.seeds)
    if given.out is not None:
        given.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
