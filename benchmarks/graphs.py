"""Measure graph matching by "auto": the mode, the marginals, the evidence and the CPU time.

``python -m benchmarks.graphs`` prints a row for each problem. Modes are compared with the best of
30 starts of SciPy's FAQ and with the planted matching. Marginals are compared with a second fit of
another seed, with enumeration up to 8 nodes, or with what symmetry implies. The error is the mean
total variation of a row.
"""

import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import quadratic_assignment

import permvi as pv
from permvi._tables import text_table

HEADER = [
    "problem", "verdict", "error", "stated", "mode - FAQ", "mode - planted", "log evidence", "se",
    "difference", "CPU s",
]  # fmt: skip
_FAQ_STARTS = 30
_ENUMERATED = 8


class Case(NamedTuple):
    """A problem, the planted matching (n,) if there is one, and the true marginals if known."""

    name: str
    model: pv.models.GraphMatching
    planted: np.ndarray | None = None
    marginals: np.ndarray | None = None


def random_graphs(n: int, p: float, flipped: float, seed: int) -> Case:
    """Return an Erdos-Renyi graph and a shuffled copy, some of its pairs of nodes flipped."""
    rng = np.random.default_rng(seed)
    edges = np.triu(rng.random((n, n)) < p, 1).astype(float)
    copy = np.abs(edges - np.triu(rng.random((n, n)) < flipped, 1))
    order = rng.permutation(n)
    seen = (copy + copy.T)[np.ix_(order, order)]
    model = pv.models.GraphMatching(seen, edges + edges.T, 0.5)
    return Case(f"N={n} p={p:g} {flipped:.0%} flipped", model, order)


def symmetric_graphs() -> Iterator[Case]:
    """Yield graphs whose marginals are known by symmetry."""
    turned = np.roll(np.eye(12), 1, axis=0)
    cycle = turned + turned.T
    yield Case(
        "cycle of 12", pv.models.GraphMatching(cycle, cycle, 3.0), None, np.full((12, 12), 1 / 12)
    )
    W = np.random.default_rng(0).normal(size=(7, 7))
    G = np.kron(np.eye(2), W + W.T)
    wanted = np.kron(np.full((2, 2), 0.5), np.eye(7))
    yield Case("two copies of 7", pv.models.GraphMatching(G, G, 3.0), None, wanted)


def cases(*, quick: bool = False) -> Iterator[Case]:
    """Yield all problems, or some small ones."""
    yield from (random_graphs(8, 0.4, 0.05, seed) for seed in range(2))
    yield from symmetric_graphs()
    if quick:
        return
    for n in (20, 50, 100):
        for p in (0.1, 0.3, 0.5):
            yield from (random_graphs(n, p, flipped, seed=1) for flipped in (0.0, 0.02, 0.05))


def row(case: Case) -> list[str]:
    """Fit a problem and return the cells of its row."""
    method = "quadratic" if case.model.shape[0] <= _ENUMERATED else "auto"
    start = time.process_time()
    found = _fit(case.model, method, 0)
    seconds = time.process_time() - start
    if case.model.shape[0] <= _ENUMERATED:
        other = pv.fit(case.model, "exact")
    else:
        other = _fit(case.model, method, 1)
    truth = other.marginals if case.marginals is None else case.marginals
    error = 0.5 * np.abs(found.marginals - truth).sum(axis=1).mean()
    stated = np.mean(found.diagnostics.sampling_error_by_row)
    best = _density(case.model, found.mode)
    planted = "" if case.planted is None else f"{best - _density(case.model, case.planted):+.1f}"
    return [
        case.name, found.diagnostics.verdict, f"{error:.4f}", f"{stated:.4f}",
        f"{best - _faq(case.model):+.1f}", planted, f"{found.log_evidence:.2f}",
        f"{found.log_evidence_se:.3f}", f"{found.log_evidence - other.log_evidence:+.3f}",
        f"{seconds:.1f}",
    ]  # fmt: skip


def _fit(model: Any, method: str, seed: int) -> pv.Posterior:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, method, seed=seed)


def _density(model: Any, perm: np.ndarray) -> float:
    A, B, C = model.quadratic
    return float((A * B[np.ix_(perm, perm)]).sum() + C[np.arange(len(perm)), perm].sum())


def _faq(model: Any) -> float:
    """Return the best log density of SciPy's FAQ from the centre and from random starts."""
    A, B, _ = model.quadratic
    rng, best = np.random.default_rng(0), -np.inf
    for k in range(_FAQ_STARTS):
        options = {"maximize": True, "rng": rng, "P0": "randomized" if k else "barycenter"}
        found = quadratic_assignment(A, B, method="faq", options=options)
        best = max(best, _density(model, found.col_ind))
    return best


def main(*, quick: bool = False) -> None:
    """Print the table."""
    print(text_table(HEADER, [row(case) for case in cases(quick=quick)]))


if __name__ == "__main__":
    main()
