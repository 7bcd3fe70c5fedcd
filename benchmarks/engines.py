"""Compare the engines with exact answers, and check how reliable their verdicts are.

``python -m benchmarks.engines --out results/engines`` runs everything (about ten minutes on
two cores) and writes ``summary.json``; ``--quick`` runs tiny versions. Problems are drawn from
fixed seeds that were not used for tuning.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import permvi as pv
from permvi._tables import text_table
from permvi.experiments.results import summary_row, write_summary

_SEED = 424_200


class Measured(NamedTuple):
    """Repeated measurements and the limit for their mean."""

    method: str
    setting: dict[str, Any]
    metric: str
    values: list[float]
    limit: float | None
    seconds: float


def points(n: int, sigma: float, seed: int) -> pv.models.PointMatching:
    """Draw the paper's matching task: noisy, shuffled copies of standard normal points."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(n, 2))
    observations = centers[rng.permutation(n)] + sigma * rng.normal(size=(n, 2))
    return pv.models.PointMatching(observations, centers, sigma)


def graphs(n: int, noise: float, divisor: float, seed: int) -> pv.models.GraphMatching:
    """Draw a noisy, permuted copy of a symmetric standard normal matrix."""
    rng = np.random.default_rng(seed)
    W, E = (np.triu(part) + np.triu(part, 1).T for part in rng.normal(size=(2, n, n)))
    order = rng.permutation(n)
    return pv.models.GraphMatching(W[order][:, order] + noise * E, W, 1 / divisor)


def black_box(model: pv.models.PointMatching) -> pv.models.CallableModel:
    """Wrap the density in a plain function of permutations, which can only be called."""
    scores = np.asarray(model.scores, np.float64)
    rows = np.arange(len(scores))
    return pv.models.CallableModel(
        lambda perm: float(scores[rows, perm].sum()), len(scores), "perm", jax=False
    )


def row_error(posterior: pv.Posterior, exact: pv.Posterior) -> float:
    """Return the mean over rows of the total variation between marginals."""
    return float(pv.metrics.total_variation_per_row(posterior.marginals, exact.marginals).mean())


def hellinger(posterior: pv.Posterior, exact: pv.Posterior) -> float:
    """Return the Hellinger distance between whole distributions, from their ``log_prob``."""
    perms = np.asarray(pv.permutations.enumerate_permutations(posterior.shape[0]))
    p, q = np.exp(exact.log_prob(perms)), np.exp(posterior.log_prob(perms))
    return float(np.sqrt(max(0.0, 1 - np.sqrt(p * q).sum())))


def small_matchings(quick: bool) -> Iterator[Measured]:
    """Measure six items: the family's own probabilities, for linear models and black boxes."""
    repeats, boxes = (2, 1) if quick else (100, 20)
    for sigma, limit in zip((0.1, 0.25, 0.5, 0.75), (0.002, 0.01, 0.02, 0.025), strict=True):
        start = time.perf_counter()
        models = [points(6, sigma, _SEED + k) for k in range(repeats)]
        fits = pv.fit_many(models, "sequential")
        seconds = time.perf_counter() - start
        exact = [pv.fit(model, "exact") for model in models]
        setting = {"n": 6, "sigma": sigma}
        distances = [hellinger(*pair) for pair in zip(fits, exact, strict=True)]
        yield Measured("sequential", setting, "hellinger", distances, limit, seconds)
        yield _evaluations("sequential", setting, fits, 10_000, seconds)
        start = time.perf_counter()
        fits = [pv.fit(black_box(model), "sequential") for model in models[:boxes]]
        seconds = time.perf_counter() - start
        setting = {**setting, "black_box": True}
        distances = [hellinger(*pair) for pair in zip(fits, exact[:boxes], strict=True)]
        yield Measured("sequential", setting, "hellinger", distances, 0.03, seconds)
        yield _evaluations("sequential", setting, fits, 20_000, seconds)


def larger_matchings(quick: bool) -> Iterator[Measured]:
    """Measure ten to twenty items against exact sums: corrected marginals, evidence, chains."""
    repeats = 1 if quick else 20
    for sigma, limit in ((0.25, 0.02), (0.5, 0.02)):
        models = [points(10, sigma, _SEED + k) for k in range(repeats)]
        boxes = [black_box(model) for model in models]
        yield from _against_exact(
            "sequential", {"n": 10, "sigma": sigma, "black_box": True}, boxes, limit, None,
            20_000, references=models,
        )  # fmt: skip
    for n in (10,) if quick else (16, 20):
        for sigma, limit in ((0.25, 0.003), (0.5, 0.025)):
            models = [points(n, sigma, _SEED + k) for k in range(repeats)]
            setting = {"n": n, "sigma": sigma}
            yield from _against_exact("sequential", setting, models, limit, 0.03, 10_000)
            some = models[: max(1, repeats // 2)]
            yield from _against_exact("mcmc", setting, some, 0.02, None, 20_000)


def multimodal(quick: bool) -> Iterator[Measured]:
    """Measure graph matching of nine items with several modes, against enumeration."""
    n, repeats = (5, 1) if quick else (9, 10)
    for noise, divisor in ((0.7, 1.0), (1.5, 4.5)):
        models = [graphs(n, noise, divisor, _SEED + k) for k in range(repeats)]
        setting = {"n": n, "noise": noise, "divisor": divisor}
        found = list(_against_exact("sequential", setting, models, 0.03, 0.05, 40_000))
        yield from found
        yield Measured("sequential", setting, "tv_worst", [max(found[0].values)], 0.08, 0.0)


def verdicts(quick: bool) -> Iterator[Measured]:
    """Measure how often trusted fits are right and right fits are trusted."""
    start = time.perf_counter()
    rows = list(_judged(quick))
    seconds = time.perf_counter() - start
    trusted = [float(error <= 0.05) for error, verdict, _ in rows if verdict == "trust"]
    right = [float(verdict == "trust") for error, verdict, _ in rows if error <= 0.02]
    missed = [
        float(verdict == "trust") for error, verdict, single in rows if single and error > 0.1
    ]
    setting = {"fits": len(rows)}
    yield Measured("all", setting, "trusted_are_right", trusted, None, seconds)
    yield Measured("all", setting, "right_are_trusted", right, None, seconds)
    if missed:
        yield Measured("all", setting, "single_components_off_by_0.1_trusted", missed, 0.0, seconds)


def _judged(quick: bool) -> Iterator[tuple[float, str, bool]]:
    """Yield the error and verdict of each fit, and whether it is one component on many modes."""
    small = [
        "rounding", "stick_breaking", "sequential", "stick_breaking_discrete", "mcmc",
        "gumbel_sinkhorn", "sinkhorn", "bethe", "naive", "map", "mallows",
    ]  # fmt: skip
    large = ["sequential", "stick_breaking_discrete", "mcmc", "rounding", "sinkhorn", "bethe"]
    cases: list[tuple[Any, list[str]]] = [
        (points(6, sigma, _SEED + 500 + k), small)
        for sigma in (0.1, 0.25, 0.5, 0.75)
        for k in range(1 if quick else 2)
    ]
    if quick:
        cases = [(cases[0][0], ["sequential", "map", "bethe"])]
    else:
        cases += [
            (points(n, sigma, _SEED + 600), large) for n in (10, 14, 18) for sigma in (0.25, 0.5)
        ]
        cases += [
            (
                graphs(8, noise, divisor, _SEED + 700 + k),
                ["sequential", "single", "mcmc", "rounding"],
            )
            for noise, divisor in ((0.7, 1.0), (1.5, 4.5))
            for k in range(3)
        ]
    for model, names in cases:
        exact = pv.fit(model, "exact")
        for name in names:
            single = name == "single"
            options = {"num_components": 1, "max_evaluations": 10_000} if single else {}
            posterior = pv.fit(model, "sequential" if single else name, **options)
            yield row_error(posterior, exact), posterior.diagnostics.verdict, single


def _against_exact(
    method: str,
    setting: dict[str, Any],
    models: list[Any],
    limit: float,
    evidence_limit: float | None,
    most: int,
    references: list[Any] | None = None,
) -> Iterator[Measured]:
    start = time.perf_counter()
    fits = [pv.fit(model, method) for model in models]
    seconds = time.perf_counter() - start
    exact = [pv.fit(model, "exact") for model in references or models]
    errors = [row_error(*pair) for pair in zip(fits, exact, strict=True)]
    yield Measured(method, setting, "tv_per_row", errors, limit, seconds)
    if evidence_limit is not None:
        gaps = [
            abs((a.log_evidence or 0.0) - (b.log_evidence or 0.0))
            for a, b in zip(fits, exact, strict=True)
        ]
        yield Measured(method, setting, "log_evidence_error", gaps, evidence_limit, seconds)
    yield _evaluations(method, setting, fits, most, seconds)


def _evaluations(
    method: str, setting: dict[str, Any], fits: Iterable[pv.Posterior], most: int, seconds: float
) -> Measured:
    counts = [float(fit.num_evaluations or 0) for fit in fits]
    return Measured(method, setting, "evaluations_worst", [max(counts)], float(most), seconds)


SECTIONS: dict[str, Callable[[bool], Iterator[Measured]]] = {
    "small_matchings": small_matchings,
    "larger_matchings": larger_matchings,
    "multimodal": multimodal,
    "verdicts": verdicts,
}


def main() -> None:
    """Run the sections and write their summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for summary.json")
    parser.add_argument("--only", choices=SECTIONS, help="run one section")
    parser.add_argument("--quick", action="store_true", help="run tiny versions")
    arguments = parser.parse_args()
    measured = []
    warnings.simplefilter("ignore", pv.FitWarning)
    for name in [arguments.only] if arguments.only else list(SECTIONS):
        for found in SECTIONS[name](arguments.quick):
            measured.append(found)
            print(f"{found.method} {found.setting} {found.metric} {np.mean(found.values):.4g}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    summary = [
        summary_row("engines", m.method, m.setting, m.metric, m.values, seconds=m.seconds)
        for m in measured
    ]
    write_summary(arguments.out, summary)
    header = ["method", "setting", "metric", "mean", "limit", "n", ""]
    print(text_table(header, [_cells(m) for m in measured]))


def _cells(m: Measured) -> list[str]:
    mean = float(np.mean(m.values))
    limit = "" if m.limit is None else f"{m.limit:g}"
    missed = m.limit is not None and mean > m.limit
    setting = ", ".join(f"{name} {value}" for name, value in m.setting.items())
    return [m.method, setting, m.metric, f"{mean:.4g}", limit, str(len(m.values)), "MISSED" if missed else ""]  # fmt: skip  # noqa: E501


if __name__ == "__main__":
    main()
