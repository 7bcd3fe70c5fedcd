"""How often the check of a model is right: ``python -m benchmarks.model_check --fits 200``.

Every row is a kind of problem with something wrong, or nothing. It prints how often the verdict was
"does not fit", and how often each test alone had a p-value below 1 %. It ends with what no check
with 5 % of false alarms can exceed: the share of t3 noise that the likelihood ratio of the true
residuals finds, and the share of graphs with twice the scale that the true matching tells, without
and with the knowledge that edges are lost and made with the same probability.
"""

import argparse
import json
import time
import warnings
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import stats

import permvi as pv
from permvi.inference.rankings import robust, solve

# Models of complete rankings, and those that take lists of some items, too.
OF_RANKINGS = tuple(name for name in solve.MODELS if name != solve.DAVIDSON)
OF_LISTS = ("mallows", "generalised_mallows", "plackett_luce")
# Points: the number of items, of dimensions, and the noise where centres have unit spread.
POINTS = [(20, 2, 0.1), (20, 3, 0.3), (40, 2, 0.1), (40, 3, 0.2)]
# Points that are often confused, the noise being as large as the distance to the next centre.
AMBIGUOUS = [(20, 2, 0.5), (30, 3, 0.7)]
POINT_FAULTS = (None, "scale half as large", "scale twice as large", "shifted frame", "t3 noise")
# Graphs of few nodes are enumerated; of larger ones, all but eight pairs are known.
GRAPHS = [(8, 0.03), (30, 0.01), (30, 0.03)]
WHOLE_GRAPHS = [(20, 0.03), (30, 0.03)]
GRAPH_FAULTS = (None, "scale half as large", "scale twice as large", "10 % of edges rewired")
RANKINGS = [(7, 20), (7, 60)]
RANKING_FAULTS = (None, "two groups of judges", "one judge in four ranks at random")
# Items, judges, and what judges give: complete rankings, the best half in order, rankings of half
# of the items, or of pairs of tied items.
FORMS = ("complete", "best half", "some items", "ties")
JUDGES = [
    *((n, judges, "complete") for n in (5, 10, 20) for judges in (20, 60, 200, 500)),
    *((n, 60, form) for n in (5, 10, 20) for form in ("best half", "ties")),
]
PARTIAL_JUDGES = [(n, judges, "some items") for n in (5, 10, 20) for judges in (60, 200)]
JUDGE_FAULTS = (None, "two equal groups of judges", "a group of one judge in five")
DYNAMICS = [(8, 400)]
DYNAMICS_FAULTS = (None, "noise twice as large", "t3 noise", "coloured noise")


def points(rng: np.random.Generator, size: Any, fault: str | None) -> Any:
    """Points around shuffled centres."""
    n, d, sigma = size
    centers = rng.normal(size=(n, d))
    noise = rng.standard_t(3, size=(n, d)) if fault == "t3 noise" else rng.normal(size=(n, d))
    observed = centers[rng.permutation(n)] + sigma * noise
    if fault == "shifted frame":
        observed[:, 0] += sigma
    factor = {"scale half as large": 0.5, "scale twice as large": 2.0}.get(fault or "", 1.0)
    return pv.models.PointMatching(observed, centers, factor * sigma), "linear", {}


def graphs(
    rng: np.random.Generator,
    size: Any,
    fault: str | None,
    *,
    whole: bool = False,
    as_flips: bool = False,
) -> Any:
    """Undirected graphs whose edges are flipped with a probability that the scale knows."""
    n, flips = size
    upper = np.triu(rng.random((n, n)) < 0.4, 1)
    B = (upper | upper.T).astype(float)
    order = rng.permutation(n)
    flipped = np.triu(rng.random((n, n)) < flips, 1)
    A = np.abs(B[np.ix_(order, order)] - (flipped | flipped.T))
    if fault == "10 % of edges rewired":
        rows, cols = np.triu_indices(n, 1)
        edges = np.flatnonzero(A[rows, cols])
        gaps = np.flatnonzero(A[rows, cols] == 0)
        num = max(1, round(0.1 * len(edges)))
        lost, new = rng.choice(edges, num, replace=False), rng.choice(gaps, num, replace=False)
        for k, value in [*((k, 0.0) for k in lost), *((k, 1.0) for k in new)]:
            A[rows[k], cols[k]] = A[cols[k], rows[k]] = value
    # The log odds ratio is 2 log((1 - f) / f), and each edge counts twice.
    scale = np.log((1 - flips) / flips)
    scale *= {"scale half as large": 0.5, "scale twice as large": 2.0}.get(fault or "", 1.0)
    known = None
    if n > 9 and not whole:
        known = np.where(np.arange(n) < n - 8, order, -1)
    if as_flips:
        model = pv.models.GraphMatching.flips(A, B, 1 / (1 + np.exp(scale)), known=known)
    else:
        model = pv.models.GraphMatching(A, B, scale, known=known)
    return model, "auto" if whole else "exact", {}


def whole_graphs(rng: np.random.Generator, size: Any, fault: str | None) -> Any:
    """Graphs of which no node is known."""
    return graphs(rng, size, fault, whole=True)


def flips(rng: np.random.Generator, size: Any, fault: str | None) -> Any:
    """Graphs whose model says that edges are flipped."""
    return graphs(rng, size, fault, as_flips=True)


def whole_flips(rng: np.random.Generator, size: Any, fault: str | None) -> Any:
    """Graphs of which no node is known, and whose model says that edges are flipped."""
    return graphs(rng, size, fault, whole=True, as_flips=True)


def rankings(rng: np.random.Generator, size: Any, fault: str | None) -> Any:
    """Rankings of a Mallows model."""
    n, judges = size
    centre = rng.permutation(n)
    other = rng.permutation(n)
    orders = []
    for k in range(judges):
        around = other if fault == "two groups of judges" and k % 2 else centre
        left, order = list(around), []
        theta = 0.0 if fault == "one judge in four ranks at random" and k % 4 == 0 else 1.0
        while left:
            weights = np.exp(-theta * np.arange(len(left)))
            order.append(left.pop(rng.choice(len(left), p=weights / weights.sum())))
        orders.append(order)
    return pv.models.Rankings(np.array(orders)), "exact", {}


def judges(rng: np.random.Generator, size: Any, fault: str | None) -> Any:
    """Rankings of any model that takes their form, or of groups of a Mallows model.

    Groups have unrelated orders. Models are as noisy as that of Kendall with theta .2 to 1.5, those
    of groups with theta 1.
    """
    n, num, form = size
    kinds = {"complete": OF_RANKINGS, "ties": ("mallows", "plackett_luce")}
    name = "mallows" if fault else str(rng.choice(kinds.get(form, OF_LISTS)))
    mean_kendall, mean_cayley = n * (n - 1) / 4, n - (1 / np.arange(1, n + 1)).sum()
    means = {"footrule": (n * n - 1) / 3, "spearman": n * (n * n - 1) / 6, "cayley": mean_cayley}
    scale = 1.0 if fault else rng.uniform(0.2, 1.5)
    theta = scale * mean_kendall / means.get(name, mean_kendall)
    thetas = theta * (rng.uniform(0.5, 1.5, n) if name == "generalised_mallows" else np.ones(1))
    levels = np.full((num, n), -1)
    share = {"two equal groups of judges": 0.5, "a group of one judge in five": 0.2}.get(fault, 0)
    present = np.ones((num, n), bool)
    if form == "some items":
        present = rng.permuted(np.tile(np.arange(n), (num, 1)), axis=1) < max(3, n // 2)
    for group in (np.arange(num) >= round(share * num), np.arange(num) < round(share * num)):
        worths = SimpleNamespace(mean=scale * rng.normal(size=n)) if "luce" in name else None
        solved = SimpleNamespace(mode=rng.permutation(n), thetas=thetas[:, None])
        truth: Any = SimpleNamespace(name=name, worths=worths, solved=solved)
        alike = np.flatnonzero(group)
        for some in alike[:, None] if form == "some items" else [alike] * bool(len(alike)):
            items = np.flatnonzero(present[some[0]])
            levels[np.ix_(some, items)] = robust.simulate(truth, items, len(some), rng)
    if form == "best half":
        levels = np.minimum(levels, n // 2)
    elif form == "ties":
        levels = levels // 2
    return pv.models.Rankings.from_ranks(np.where(present, levels, np.nan)), name, {}


def dynamics(rng: np.random.Generator, size: Any, fault: str | None) -> Any:
    """Two recordings of one linear system, with half of the neurons known."""
    n, steps = size
    support = rng.random((n, n)) < 0.5
    np.fill_diagonal(support, True)
    W = np.where(support, rng.normal(size=(n, n)), 0.0)
    W *= 0.7 / np.abs(np.linalg.eigvals(W)).max()
    tau = float(np.sqrt((W[support] ** 2).mean()))
    recordings, known = [], []
    for _ in range(2):
        noise = (
            rng.standard_t(3, size=(steps, n))
            if fault == "t3 noise"
            else rng.normal(size=(steps, n))
        )
        if fault == "coloured noise":
            noise[1:] = (noise[1:] + 0.5 * noise[:-1]) / np.sqrt(1.25)
        y = np.zeros((steps, n))
        for t in range(1, steps):
            y[t] = W @ y[t - 1] + noise[t]
        labels = rng.permutation(n)
        recordings.append(y[:, labels])
        known.append(np.where(np.arange(n) < n // 2, labels, -1))
    sigma = 0.5 if fault == "noise twice as large" else 1.0
    scales = {"weight_scale": tau, "noise_scale": sigma}
    model = pv.models.SharedDynamics(recordings, support, known=known, **scales)
    return model, "collapsed", {}


KINDS = {
    "points": (points, POINTS, POINT_FAULTS),
    "ambiguous": (points, AMBIGUOUS, POINT_FAULTS),
    "graphs": (graphs, GRAPHS, GRAPH_FAULTS),
    "whole_graphs": (whole_graphs, WHOLE_GRAPHS, GRAPH_FAULTS),
    "flips": (flips, GRAPHS, GRAPH_FAULTS),
    "whole_flips": (whole_flips, WHOLE_GRAPHS, GRAPH_FAULTS),
    "rankings": (rankings, RANKINGS, RANKING_FAULTS),
    "judges": (judges, JUDGES, JUDGE_FAULTS),
    "partial_judges": (judges, PARTIAL_JUDGES, JUDGE_FAULTS),
    "dynamics": (dynamics, DYNAMICS, DYNAMICS_FAULTS),
}


def best_power(num: int, level: float = 0.05, simulations: int = 20_000) -> float:
    """Return how often the best test tells t3 from normal noise, given all ``num`` residuals.

    That is the likelihood ratio (Neyman and Pearson 1933).
    """
    rng = np.random.default_rng(num)
    samples = rng.normal(size=(simulations, num)), rng.standard_t(3, size=(simulations, num))
    null, found = ((stats.t.logpdf(z, 3) - stats.norm.logpdf(z)).sum(axis=1) for z in samples)
    return float((found > np.quantile(null, 1 - level)).mean())


def best_graph_power(
    n: int, flips: float, *, as_flips: bool, level: float = 0.05, simulations: int = 20_000
) -> float:
    """Return how often the best test tells a scale twice as large, given the true matching.

    Both laws of the number of shared edges, given the numbers of edges, have a monotone likelihood
    ratio, and so have binomial laws: the best test rejects where too many pairs disagree. At the
    threshold it rejects at random, so that false alarms have exactly the level.
    """
    rng = np.random.default_rng(n)
    total = n * (n - 1) // 2
    edges = rng.binomial(total, 0.4, simulations)
    lost, made = rng.binomial(edges, flips), rng.binomial(total - edges, flips)
    wrong = flips**2 / (flips**2 + (1 - flips) ** 2)
    if as_flips:
        law, worst = stats.binom(total, wrong), lost + made
        above = law.sf(worst)
    else:
        odds = ((1 - wrong) / wrong) ** 2
        law = stats.nchypergeom_fisher(total, edges, edges - lost + made, odds)
        worst = edges - lost
        above = law.cdf(worst - 1)
    chance = (level - above) / np.maximum(law.pmf(worst), 1e-300)
    return float(np.clip(chance, 0.0, 1.0).mean())


def measure(kind: str, size: Any, fault: str | None, fits: int, first: int = 0) -> dict[str, Any]:
    """Fit and check some problems of a kind, with seeds from ``first`` on."""
    make = KINDS[kind][0]
    verdicts: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    began = time.process_time()
    for k in range(first, first + fits):
        numbers = [FORMS.index(x) if isinstance(x, str) else int(100 * x) for x in size]
        model, method, options = make(np.random.default_rng([k, *numbers]), size, fault)
        if make is judges:
            found = robust.check(solve.answer(method, model.ballots, k), k)
        else:
            found = pv.fit(model, method, **options).check(model)
        verdicts[found.verdict] += 1
        alone.update(name for name, p in found.p_values.items() if p < 0.01)
    return {
        "problem": kind,
        "size": list(size),
        "wrong": fault or "nothing",
        "fits": fits,
        "does_not_fit": verdicts["does not fit"] / fits,
        "no_check": verdicts["no check"] / fits,
        "below_1_percent": {name: count / fits for name, count in sorted(alone.items())},
        "cpu_s": round(time.process_time() - began, 1),
    }


def main() -> None:
    """Print the table, and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=40, help="Fits of each kind of problem.")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--first", type=int, default=0, help="Seed of the first problem.")
    parser.add_argument("--only-right", action="store_true", help="Only models that are right.")
    parser.add_argument("--out", type=Path, help="File for the rows as JSON.")
    given = parser.parse_args()
    warnings.simplefilter("ignore", pv.FitWarning)
    rows = []
    for kind in given.kinds:
        _, sizes, faults = KINDS[kind]
        for fault in faults[:1] if given.only_right else faults:
            for size in sizes:
                row = measure(kind, size, fault, given.fits, given.first)
                rows.append(row)
                print(
                    f"{kind:9} {size!s:24} {row['wrong']:34} {row['does_not_fit']:.3f} "
                    f"{row['no_check']:.3f} {row['cpu_s']} s {row['below_1_percent']}",
                    flush=True,
                )
    for kind in given.kinds:
        right = [r for r in rows if r["problem"] == kind and r["wrong"] == "nothing"]
        print(f"{kind}: false alarms {np.mean([r['does_not_fit'] for r in right]):.4f}")
    for n, d, _ in POINTS[:3]:
        print(f"t3 noise, {n * d} residuals: no test finds more than {best_power(n * d):.3f}")
    for n, probability in GRAPHS[1:2] + WHOLE_GRAPHS:
        plain, known = (best_graph_power(n, probability, as_flips=each) for each in (False, True))
        print(f"scale x 2, {n} nodes, {probability} flipped: {plain:.3f}, with flips {known:.3f}")
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
