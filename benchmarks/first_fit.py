"""Time the first fit of a process, with an empty cache of compiled programmes and with a full one.

``python -m benchmarks.first_fit --out results/first_fit`` fits models of 12 and 30 items by every
method that takes them, each in a fresh process, twice: the first has nothing in its cache, the
second finds there what the first has compiled. It writes ``summary.json``. ``--methods``,
``--models`` and ``--sizes`` choose among them.

Seconds of the processor are what a shared machine leaves comparable. They count all threads and the
whole process: the start of Python, the imports, the fit and its verdict.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MODELS = ("points", "graph", "latent")
SIZES = (12, 30)
# Seconds of a first fit with a full cache.
LIMIT = 3.0
METRICS = ("wall", "processor", "fit_wall", "fit_processor", "compiled", "from_cache")
_EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
    "/jax/core/compile/backend_compile_duration": "compiling",
}


def main() -> None:
    """Run the chosen fits, print a line for each, and write the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--child", nargs=3, metavar=("MODEL", "N", "METHOD"))
    chosen = parser.parse_args()
    if chosen.child:
        model, n, method = chosen.child
        sys.stdout.write(json.dumps(first_fit(model, int(n), method)) + "\n")
        return
    if chosen.out is not None:
        chosen.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for row in run(chosen.models, chosen.sizes, chosen.methods):
        sys.stdout.write(_line(row) + "\n")
        sys.stdout.flush()
        rows.append(row)
    if chosen.out is not None:
        from permvi.experiments.results import write_summary

        write_summary(chosen.out, [part for row in rows for part in _summary(row)])


def run(models: Any, sizes: Any, methods: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield what each fit took, with the cache "empty" and then "full"."""
    from permvi.inference.registry import names_for

    for model in models:
        for n in sizes:
            for method in methods or names_for(problem(model, n)):
                with tempfile.TemporaryDirectory() as folder:
                    for cache in ("empty", "full"):
                        took = _in_fresh_process(model, n, method, folder)
                        if "refused" in took:
                            break
                        yield {"model": model, "n": n, "method": method, "cache": cache} | took


def problem(kind: str, n: int) -> Any:
    """Return a model of n items: points, a pair of graphs, or points with an unknown spread."""
    from benchmarks.engines import graphs, points

    if kind == "graph":
        return graphs(n, 0.5, 2.0, seed=0)
    model = points(n, 0.25, seed=0)
    if kind == "points":
        return model

    import jax.numpy as jnp
    import numpyro.distributions as dist

    import permvi as pv

    def log_density(X: Any, spread: Any) -> Any:
        residuals = model.observations - X @ model.centers
        return -0.5 * jnp.sum(residuals**2) / spread**2 - 2 * n * jnp.log(spread)

    latents = {"spread": dist.LogNormal(-1.5, 0.5)}
    return pv.models.CallableModel(log_density, n, latents=latents)


def first_fit(kind: str, n: int, method: str) -> dict[str, Any]:
    """Fit once in this process; return seconds, numbers of programmes, and what took how long."""
    import warnings

    import permvi as pv

    pv.enable_cache(small=True)
    model = problem(kind, n)
    took: dict[str, Any] = dict.fromkeys(("compiled", "from_cache", *_EVENTS.values()), 0)
    _listen(took)
    start = time.perf_counter(), time.process_time()
    try:
        with warnings.catch_warnings(action="ignore", category=pv.FitWarning):
            posterior = pv.fit(model, method, seed=0)
    except (ValueError, TypeError) as error:
        return {"refused": str(error)}
    took["fit_wall"] = time.perf_counter() - start[0]
    took["fit_processor"] = time.process_time() - start[1]
    # What was loaded from the cache was announced as compiled too.
    took["compiled"] -= took["from_cache"]
    return took | {"verdict": posterior.diagnostics.verdict}


def _listen(took: dict[str, Any]) -> None:
    import jax.monitoring

    def on_duration(event: str, seconds: float, **_: Any) -> None:
        name = _EVENTS.get(event)
        if name is not None:
            took[name] += seconds
            took["compiled"] += name == "compiling"

    def on_event(event: str, **_: Any) -> None:
        took["from_cache"] += event == "/jax/compilation_cache/cache_hits"

    jax.monitoring.register_event_duration_secs_listener(on_duration)
    jax.monitoring.register_event_listener(on_event)


def _in_fresh_process(model: str, n: int, method: str, folder: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.first_fit", "--child", model, str(n), method]
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PERMVI_CACHE": folder},
    )
    wall, after = time.perf_counter() - start, os.times()
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    processor = sum(after[2:4]) - sum(before[2:4])
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {"wall": wall, "processor": processor}


def _line(row: dict[str, Any]) -> str:
    numbers = " ".join(f"{name} {row[name]:.4g}" for name in (*METRICS, *_EVENTS.values()))
    return f"{row['model']} {row['n']} {row['method']} {row['cache']}: {numbers}"


def _summary(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    from permvi.experiments.results import summary_row

    setting = {key: row[key] for key in ("model", "n", "cache")}
    for metric in METRICS:
        yield summary_row(
            "first_fit", row["method"], setting, metric, [row[metric]], seconds=row["wall"]
        )


if __name__ == "__main__":
    main()
