"""Measure matchings with other unknowns against quadrature.

``python -m benchmarks.latents --out results/latents`` writes a row for each problem, and goes on
where an earlier run ended. There are three parts:

* ``scale``: points whose noise is unknown, by "auto". Whether the true scale is in its 95 %
  interval, and for some problems the error against tempered chains on matchings. These chains
  share no code with permvi: the log density of a matching is a function of its sum of squares,
  integrated over the scale on a grid.
* ``shift``: the model of ``docs/numpyro.md``, four pictures with one shift, by `PermutationGibbs`,
  against enumeration of all arrangements at each point of a grid of shifts.
* ``covariance``: a plate of three permutations of six points with one covariance, likewise.

The error is the mean total variation of a row, ``worst`` the largest. CPU seconds include
compilation.
"""

import argparse
import csv
import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numba
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS
from scipy.special import logsumexp

import permvi as pv
from permvi.experiments.results import write_rows

Row = dict[str, Any]
SEED = 2_700  # of the problems by default; none of them was used for tuning
_REFERENCE = 200_000_000
_NUM_SCALES = 20


@numba.njit(nogil=True)
def _collapsed(squares, table, step, betas, perms, num_sweeps, rng):
    """Run tempered swaps whose density is a table over log sums of squares; return counts."""
    K, n = perms.shape
    totals, counts = np.zeros(K), np.zeros((n, n))

    def density(total, table, step):
        place = (np.log(total) - table[0, 0]) / step
        k = min(max(int(place), 0), table.shape[1] - 2)
        return table[1, k] + (place - k) * (table[1, k + 1] - table[1, k])

    for k in range(K):
        for i in range(n):
            totals[k] += squares[i, perms[k, i]]
    for sweep in range(num_sweeps):
        for k in range(K):
            perm = perms[k]
            now = density(totals[k], table, step)
            for _ in range(n):
                u, v = int(rng.random() * n), int(rng.random() * n)
                if u == v:
                    continue
                a, b = perm[u], perm[v]
                new = totals[k] + squares[u, b] + squares[v, a] - squares[u, a] - squares[v, b]
                value = density(new, table, step)
                if value >= now or rng.random() < np.exp(betas[k] * (value - now)):
                    perm[u], perm[v] = b, a
                    totals[k], now = new, value
        for k in range(sweep % 2, K - 1, 2):
            change = (betas[k] - betas[k + 1]) * (
                density(totals[k + 1], table, step) - density(totals[k], table, step)
            )
            if change >= 0 or rng.random() < np.exp(change):
                totals[k], totals[k + 1] = totals[k + 1], totals[k]
                for i in range(n):
                    perms[k, i], perms[k + 1, i] = perms[k + 1, i], perms[k, i]
        if sweep % 100 == 0:
            # Sums of differences gather rounding errors.
            for k in range(K):
                totals[k] = 0.0
                for i in range(n):
                    totals[k] += squares[i, perms[k, i]]
        if sweep >= num_sweeps // 5:
            for i in range(n):
                counts[i, perms[K - 1, i]] += 1
    return counts


def scale_reference(model: Any, start: np.ndarray, first: int) -> tuple[np.ndarray, float]:
    """Return marginals (n, n) by two tempered runs, and how far they differ.

    One run begins at a given matching, the other one at random.
    """
    squares = ((np.asarray(model.observations)[:, None] - np.asarray(model.centers)) ** 2).sum(-1)
    n, d = model.observations.shape
    median, sd = np.asarray(model.scale_prior)
    logs = np.log(median) + sd * np.linspace(-8, 8, 4001)
    prior = -0.5 * ((logs - np.log(median)) / sd) ** 2
    low = np.log(squares.min(axis=1).sum() + 1e-12)
    places = np.linspace(low, np.log(squares.max(axis=1).sum()), 4001)
    values = [logsumexp(prior - n * d * logs - 0.5 * np.exp(place - 2 * logs)) for place in places]
    table, runs = np.array([places, values]), []
    betas = np.linspace(0.5, 1.0, 4)
    num_sweeps = _REFERENCE // (2 * n * len(betas))
    for seed in range(2):
        rng = np.random.default_rng([first, seed])
        beginning = start if seed == 0 else rng.permutation(n)
        perms = np.tile(beginning, (len(betas), 1))
        step = places[1] - places[0]
        counts = _collapsed(squares, table, step, betas, perms, num_sweeps, rng)
        runs.append(counts / counts[0].sum())
    return (runs[0] + runs[1]) / 2, float(_by_row(*runs).mean())


def _by_row(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return 0.5 * np.abs(one - other).sum(axis=-1)


def scales(first: int) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Yield names of problems with an unknown scale, and functions that measure them."""
    for n in (30, 100):
        for seed in range(_NUM_SCALES):
            seeds = [first, n, seed]
            yield f"N={n}, seed {seed}", lambda seeds=seeds: _scale_row(seeds, seeds[-1] < 3)


def _scale_row(seeds: list[int], compared: bool) -> Row:
    n, rng = seeds[1], np.random.default_rng(seeds)
    centers = rng.normal(size=(n, 2))
    # Large enough for neighbours to be confused, small enough for most items to be clear.
    true = float(np.exp(rng.uniform(np.log(0.5), np.log(2)))) / np.sqrt(n)
    seen = centers[rng.permutation(n)] + true * rng.normal(size=(n, 2))
    model = pv.models.PointMatching(seen, centers, scale=None)
    found, seconds = _timed(lambda: pv.fit(model, seed=seeds[-1]))
    low, high = np.quantile(found.latents["scale"].draws, [0.025, 0.975])
    row: Row = {
        "method": found.method, "verdict": found.diagnostics.verdict,
        "true_scale": round(true, 4), "low": round(float(low), 4), "high": round(float(high), 4),
        "inside": bool(low <= true <= high), "error": "", "worst": "", "runs_apart": "",
        "cpu_s": round(seconds, 1),
    }  # fmt: skip
    if compared:
        truth, apart = scale_reference(model, found.mode, seeds[0])
        errors = _by_row(found.marginals, truth)
        row |= {"error": round(float(errors.mean()), 4), "worst": round(float(errors.max()), 4)}
        row |= {"runs_apart": round(apart, 4)}
    return row


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        found = function()
    return found, time.process_time() - start


def shift_model(landmarks: Any, pictures: Any, noise: float) -> None:
    """The model of ``docs/numpyro.md``."""
    with numpyro.plate("coordinates", 2):
        shift = numpyro.sample("shift", dist.Normal(0.0, 1.0))
    with numpyro.plate("pictures", len(pictures)):
        X = numpyro.sample("X", pv.distributions.Permutation(len(landmarks)))
        seen = dist.Normal(landmarks[X] + shift, noise).to_event(2)
        numpyro.sample("seen", seen, obs=pictures)


def covariance_model(landmarks: Any, pictures: Any) -> None:
    """Three pictures whose noise has one covariance."""
    with numpyro.plate("coordinates", 2):
        width = numpyro.sample("width", dist.LogNormal(jnp.log(0.4), 0.5))
    rho = numpyro.sample("rho", dist.Uniform(-0.95, 0.95))
    cross = rho * width[0] * width[1]
    cov = jnp.array([[width[0] ** 2, cross], [cross, width[1] ** 2]])
    with numpyro.plate("pictures", len(pictures)):
        X = numpyro.sample("X", pv.distributions.Permutation(len(landmarks)))
        seen = dist.MultivariateNormal(landmarks[X], cov).to_event(1)
        numpyro.sample("seen", seen, obs=pictures)


def by_quadrature(
    log_prior: np.ndarray, scores_at: Callable[[int], np.ndarray], n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return marginals (S, n, n) and the weights (g,) of grid points.

    ``scores_at(k)`` (S, n, n) are the log densities of pairs at a point of the grid with the log
    prior ``log_prior[k]``. All n! arrangements are summed.
    """
    perms = np.array(list(itertools.permutations(range(n))))
    hot = np.eye(n)[perms].reshape(len(perms), -1)
    log_p, tables = log_prior.copy(), []
    for k in range(len(log_prior)):
        scores = scores_at(k)
        values = hot @ scores.reshape(len(scores), -1).T
        top = values.max(axis=0)
        weights = np.exp(values - top)
        total = weights.sum(axis=0)
        log_p[k] += (np.log(total) + top).sum()
        tables.append((hot.T @ (weights / total)).T)
    p = np.exp(log_p - logsumexp(log_p))
    return np.einsum("g,gsk->sk", p, tables).reshape(-1, n, n), p


def _pictures(n: int, num: int, noise: Any, seeds: list[int]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seeds)
    landmarks = rng.normal(size=(n, 2))
    orders = np.stack([rng.permutation(n) for _ in range(num)])
    return landmarks, landmarks[orders] + rng.normal(size=(num, n, 2)) @ noise


def _kernel_row(model: Any, data: tuple, truth: np.ndarray, moments: dict, seed: int) -> Row:
    """Run the kernel and compare marginals and latents with means and sds, {name: (2, ...)}."""
    kernel = pv.PermutationGibbs(NUTS(model))
    options = {"num_chains": 4, "chain_method": "vectorized", "progress_bar": False}
    mcmc = MCMC(kernel, num_warmup=500, num_samples=2000, **options)
    wall = time.perf_counter()
    _, seconds = _timed(
        lambda: jax.block_until_ready(mcmc.run(jax.random.key(seed), *data) or mcmc.get_samples())
    )
    wall = time.perf_counter() - wall
    found, summary = kernel.posterior(mcmc, "X"), kernel.summary(mcmc)
    errors = _by_row(np.asarray(found.marginals), truth)
    off = max(
        float(np.max(np.abs(found.latents[name].mean - mean) / sd))
        for name, (mean, sd) in moments.items()
    )
    return {
        "verdict": found.diagnostics.verdict, "error": round(float(errors.mean()), 4),
        "worst": round(float(errors.max()), 4), "latents_off_sd": round(off, 4),
        "r_hat": round(max(float(np.max(one.r_hat)) for one in summary.values()), 4),
        "ess": round(min(float(np.min(one.ess)) for one in summary.values())),
        "cpu_s": round(seconds, 1), "wall_s": round(wall, 1),
    }  # fmt: skip


def _moments(p: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = p @ values
    return mean, np.sqrt(p @ (values - mean) ** 2)


def shifts(first: int) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Yield names of problems with a shared shift, and functions that measure them."""
    for noise in (0.1, 0.4):
        for seed in range(2):
            name = f"noise {noise:g}, seed {seed}"
            yield name, lambda noise=noise, seed=seed: _shift_row(noise, first, seed)


def _shift_row(noise: float, first: int, seed: int) -> Row:
    landmarks, pictures = _pictures(5, 4, noise * np.eye(2), [first, 5, seed])
    pictures = pictures + np.array([0.5, -0.3])
    # The grid covers eight standard errors around the mean, which no order of points changes.
    # Prior and likelihood are normal, so that the posterior of the shift is near there.
    centre = (pictures.mean(axis=(0, 1)) - landmarks.mean(axis=0)) / (1 + noise**2 / 20)
    line = np.linspace(-8, 8, 81) * noise / np.sqrt(20)
    grid = centre + np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)

    def scores_at(k: int) -> np.ndarray:
        residual = pictures[:, :, None] - landmarks - grid[k]
        return -0.5 * (residual**2).sum(axis=-1) / noise**2

    truth, p = by_quadrature(-0.5 * (grid**2).sum(axis=1), scores_at, 5)
    data = jnp.asarray(landmarks), jnp.asarray(pictures), noise
    return _kernel_row(shift_model, data, truth, {"shift": _moments(p, grid)}, seed)


def covariances(first: int) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Yield names of problems with a shared covariance, and functions that measure them."""
    for seed in range(3):
        yield f"seed {seed}", lambda seed=seed: _covariance_row(first, seed)


def _covariance_row(first: int, seed: int) -> Row:
    noise = np.array([[0.4, 0.0], [0.2, 0.3]]).T
    landmarks, pictures = _pictures(6, 3, noise, [first, 6, seed])
    # Points of each unknown: log widths and the inverse hyperbolic tangent of rho / .95.
    logs = np.log(0.4) + 0.5 * np.linspace(-3.5, 3.5, 25)
    turns = np.linspace(-3.5, 3.5, 25)
    grid = np.stack(np.meshgrid(logs, logs, turns, indexing="ij"), axis=-1).reshape(-1, 3)
    widths, rho = np.exp(grid[:, :2]), 0.95 * np.tanh(grid[:, 2])
    prior = -0.5 * ((grid[:, :2] - np.log(0.4)) / 0.5) ** 2
    log_prior = prior.sum(axis=1) - 2 * np.log(np.cosh(grid[:, 2]))
    residual = pictures[:, :, None] - landmarks

    def scores_at(k: int) -> np.ndarray:
        cross = rho[k] * widths[k, 0] * widths[k, 1]
        cov = np.array([[widths[k, 0] ** 2, cross], [cross, widths[k, 1] ** 2]])
        squares = np.einsum("snmi,ij,snmj->snm", residual, np.linalg.inv(cov), residual)
        return -0.5 * squares - 0.5 * np.log(np.linalg.det(cov))

    truth, p = by_quadrature(log_prior, scores_at, 6)
    data = jnp.asarray(landmarks), jnp.asarray(pictures)
    moments = {"width": _moments(p, widths), "rho": _moments(p, rho)}
    return _kernel_row(covariance_model, data, truth, moments, seed)


PARTS = {"scale": scales, "shift": shifts, "covariance": covariances}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=", ".join(PARTS))
    parser.add_argument("--first", type=int, default=SEED, help="the seed of the problems")
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin no problem after this")
    parser.add_argument("--out", type=Path, required=True, help="folder for PART/rows.csv")
    given = parser.parse_args(arguments)
    end = time.monotonic() + given.seconds
    for part in given.parts:
        folder = given.out / part
        folder.mkdir(parents=True, exist_ok=True)
        path, rows = folder / "rows.csv", []
        if path.is_file():
            with path.open(encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
        done = {row["problem"] for row in rows}
        for name, measure in PARTS[part](given.first):
            if name not in done and time.monotonic() < end:
                rows.append({"problem": name, **measure()})
                print(rows[-1], flush=True)
                write_rows(folder, rows)


if __name__ == "__main__":
    main()
