"""Worms whose model is wrong: ``python -m benchmarks.dynamics --out FILE``.

Every fault is simulated on the connectome (T = 1000 by default, tolerance .05, 25 known neurons in
each worm) and fitted with and without allowing for it. Accuracy is that of the neurons that are not
known. Seconds are those of processors (user and system), without simulation and compilation. The
data has to be in ``$PERMVI_DATA``.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import permvi as pv
from permvi.experiments._worms import candidates, move_edges, simulate_worms
from permvi.experiments.celegans.problems import network
from permvi.experiments.celegans.scoring import accuracies

FAULTS: dict[str, dict[str, Any]] = {
    "none": {},
    "10 % of edges rewired": {"rewired": 0.1},
    "20 % of edges rewired": {"rewired": 0.2},
    "t3 innovations": {"degrees": 3.0},
    "measurement noise of sd 1": {"measurement_scale": 1.0},
}
TOLERANCE = 0.05
# A stream of random numbers of its own; settings of the method were chosen on others.
STREAM = 1905


def simulate(
    fault: str, num_worms: int, seed: int, *, num_steps: int = 1000, stream: int = STREAM
) -> tuple[pv.models.SharedDynamics, Any]:
    """Return the model of simulated worms with a fault, and the worms."""
    graph = network("connectome")
    rng = np.random.default_rng([stream, num_worms, seed])
    settings = {**FAULTS[fault], "num_steps": num_steps}
    share = settings.pop("rewired", 0.0)
    worms = simulate_worms(graph.adjacency, graph.positions, rng, num_worms=num_worms, **settings)
    diagram = move_edges(graph.adjacency, share, rng)
    mask, known = candidates(worms.positions, graph.positions, TOLERANCE), worms.known
    model = pv.models.SharedDynamics(list(worms.recordings), diagram, mask=mask, known=known)
    return model, worms


def measure(
    fault: str, num_worms: int, seed: int, *, forgive: bool, **simulations: int
) -> dict[str, Any]:
    """Return one row: accuracy, expected accuracy, verdict, model check and seconds of a fit."""
    model, worms = simulate(fault, num_worms, seed, **simulations)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        posterior = pv.fit(model, "collapsed", seed=0, forgive=forgive)
    seconds = time.process_time() - began
    found = accuracies(posterior, worms)
    return {
        "fault": fault,
        "worms": num_worms,
        "seed": seed,
        **simulations,
        "forgive": forgive,
        "accuracy_unknown": round(found["accuracy_unknown"], 4),
        "expected_accuracy": round(found["expected_accuracy"], 4),
        "verdict": posterior.diagnostics.verdict,
        "check": posterior.check(model).verdict,
        "allowed_for": [each for each in posterior.diagnostics.reasons if "allowed" in each],
        "cpu_seconds": round(seconds, 2),
    }


def main() -> None:
    """Fit all faults, write a row after each fit and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worms", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--faults", nargs="+", default=list(FAULTS), choices=list(FAULTS))
    parser.add_argument("--steps", type=int, default=1000, help="time steps of each recording")
    parser.add_argument("--stream", type=int, default=STREAM, help="of random numbers")
    parser.add_argument("--forgiving", action="store_true", help="only fits that allow for faults")
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    # Compiles both kinds of evidence.
    simulations = {"num_steps": chosen.steps, "stream": chosen.stream}
    kinds = (True,) if chosen.forgiving else (False, True)
    measure("20 % of edges rewired", 1, 999, forgive=True, **simulations)
    rows = json.loads(chosen.out.read_text()) if chosen.out.exists() else []
    for num_worms in chosen.worms:
        for seed in chosen.seeds:
            for fault in chosen.faults:
                for forgive in kinds:
                    rows.append(measure(fault, num_worms, seed, forgive=forgive, **simulations))
                    print(json.dumps(rows[-1]), flush=True)
                    chosen.out.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")


if __name__ == "__main__":
    main()
