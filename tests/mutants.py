"""Break the package on purpose, one place at a time, and see whether the tests notice.

``make mutate`` runs this file. Each fault is put into a temporary copy of the repository, and the
test files of its module run there, without those marked slow. The table shows which faults went
unnoticed; more than two of them make the command fail. Arguments pick faults by number.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
MOST_UNNOTICED = 2
# A fault may make a loop endless.
PATIENCE = 600


class Mutant(NamedTuple):
    """A line of a file below ``src/permvi``, what becomes of it, and tests below ``tests``."""

    file: str
    before: str
    after: str
    tests: tuple[str, ...]


_STICKS = (
    "transforms/test_stick_breaking.py",
    "transforms/test_stick_breaking_sweeps.py",
)
_EXACT = (
    "inference/test_exact.py",
    "inference/test_exact_enumeration.py",
    "inference/test_exact_draws.py",
    "inference/test_exact_errors.py",
)
_MURTY = ("inference/test_exact_k_best.py",)
_WORMS = ("inference/test_linear_chains.py", "inference/test_linear.py")
_CHAINS = ("inference/test_mcmc_kernels.py", "inference/test_mcmc.py")
_VERDICT = (
    "posterior/test_diagnostics.py",
    "inference/test_verdict.py",
    "inference/test_verdict_precision.py",
)

MUTANTS = (
    # Transforms.
    Mutant(
        "transforms/_cells.py",
        "by_not_b = w_dot - prop.b * logit_dot",
        "by_not_b = w_dot + prop.b * logit_dot",
        _STICKS,
    ),
    Mutant(
        "transforms/_cells.py",
        "row_is_short = jnp.where(in_this_line, r <= c, R <= D)",
        "row_is_short = jnp.where(in_this_line, r <= c, R >= D)",
        _STICKS,
    ),
    Mutant(
        "transforms/_wavefront.py",
        "return (column >= 0) & (column < K)",
        "return (column >= 0) & (column <= K)",
        _STICKS,
    ),
    Mutant(
        "transforms/_forward.py",
        "column = diagonal - jnp.arange(segment.low, segment.high)",
        "column = diagonal + 1 - jnp.arange(segment.low, segment.high)",
        _STICKS,
    ),
    Mutant(
        "transforms/stick_breaking.py",
        "log_slopes = _log_logistic_slope(logits) - jnp.log(tau)[..., None, None]",
        "log_slopes = _log_logistic_slope(logits) + jnp.log(tau)[..., None, None]",
        _STICKS,
    ),
    Mutant(
        "transforms/stick_breaking_limit.py",
        "row_unassigned = perm[..., :K, None] >= column",
        "row_unassigned = perm[..., :K, None] > column",
        ("transforms/test_stick_breaking_limit.py",),
    ),
    Mutant(
        "transforms/sinkhorn.py",
        "f_dot = -rows - M @ g_dot",
        "f_dot = -rows + M @ g_dot",
        ("transforms/test_sinkhorn.py",),
    ),
    Mutant(
        "transforms/sinkhorn.py",
        "lax.scan(step, g, length=num_steps - 1)",
        "lax.scan(step, g, length=num_steps)",
        ("transforms/test_sinkhorn.py",),
    ),
    Mutant(
        "transforms/rounding.py",
        "compatible = (unknown_row[:, None] & unknown_column)",
        "compatible = (unknown_row[:, None] | unknown_column)",
        ("transforms/test_rounding.py",),
    ),
    Mutant(
        "transforms/simplex.py",
        "return log_X, jnp.sum(log_rest[..., :-1], axis=-1)",
        "return log_X, jnp.sum(log_rest[..., 1:], axis=-1)",
        ("transforms/test_simplex.py",),
    ),
    Mutant(
        "transforms/concrete.py",
        "math.lgamma(n) + (n - 1) * jnp.log(tau)",
        "math.lgamma(n) + n * jnp.log(tau)",
        ("transforms/test_concrete.py",),
    ),
    # Exact.
    Mutant(
        "inference/exact/subset_kernels.py",
        "may_stay = next_window[0] <= size <= next_window[1]",
        "may_stay = next_window[0] <= size < next_window[1]",
        _EXACT,
    ),
    Mutant(
        "inference/exact/subset_kernels.py",
        "sums[j] += joint * (1 - ((members >> j) & 1))",
        "sums[j] += joint * ((members >> j) & 1)",
        _EXACT,
    ),
    Mutant(
        "inference/exact/subset_kernels.py",
        "weights[size] = stay * backward[members] if window[0] <= count <= window[1] else 0.0",
        "weights[size] = stay * backward[members] if window[0] < count <= window[1] else 0.0",
        _EXACT,
    ),
    Mutant(
        "inference/exact/enumeration.py",
        "matchings = matchings[covered + (n - 1 - i) >= len(required)]",
        "matchings = matchings[covered + (n - 1 - i) > len(required)]",
        _EXACT,
    ),
    Mutant(
        "inference/exact/enumeration.py",
        "fewest = max(np.count_nonzero(~allowed[:n, m])",
        "fewest = min(np.count_nonzero(~allowed[:n, m])",
        _EXACT,
    ),
    Mutant(
        "inference/exact/blocks.py",
        'csr_array(np.isfinite(lengths)), connection="strong"',
        'csr_array(np.isfinite(lengths)), connection="weak"',
        _EXACT,
    ),
    Mutant(
        "inference/exact/solve.py",
        "entropy = log_total - float(marginals[possible]",
        "entropy = log_total + float(marginals[possible]",
        _EXACT,
    ),
    Mutant(
        "inference/exact/murty.py",
        "earlier = cell.forbidden if row == start else cell.forbidden[:0]",
        "earlier = cell.forbidden if row != start else cell.forbidden[:0]",
        _MURTY,
    ),
    Mutant(
        "inference/exact/murty.py",
        "new_row[earlier, row] = -np.inf",
        "new_row[row, earlier] = -np.inf",
        _MURTY,
    ),
    # Chains.
    Mutant(
        "inference/linear/chains.py",
        "return Rates(stays, np.minimum(cols * price, 1.0), bool(rows.any() or cols.any()))",
        "return Rates(stays, np.minimum(cols, 1.0), bool(rows.any() or cols.any()))",
        _WORMS,
    ),
    Mutant(
        "inference/linear/worm_kernels.py",
        "keep[big] -= 1.0 - keep[e]",
        "keep[big] -= keep[e]",
        _WORMS,
    ),
    Mutant(
        "inference/linear/worm_kernels.py",
        "for k in range(len(journal) - 1, -1, -1):",
        "for k in range(len(journal)):",
        _WORMS,
    ),
    Mutant(
        "inference/mcmc/kernels.py",
        "ratio = log_q_old - log_q",
        "ratio = log_q - log_q_old",
        _CHAINS,
    ),
    Mutant(
        "inference/mcmc/moves.py",
        "place = place + (place >= space.places[site, row, now[row]])",
        "place = place + (place > space.places[site, row, now[row]])",
        _CHAINS,
    ),
    # Verdict.
    Mutant(
        "inference/verdict/audit.py",
        "return np.sqrt(p * (1 - p) / (2 * np.pi * num_draws)).sum(axis=-1)",
        "return np.sqrt(p * (1 - p) / (np.pi * num_draws)).sum(axis=-1)",
        _VERDICT,
    ),
    Mutant(
        "inference/verdict/audit.py",
        "if coverage.closed else None), 0",
        "if not coverage.closed else None), 0",
        _VERDICT,
    ),
    Mutant(
        "inference/verdict/precision.py",
        'Judgement("do not trust" if error > _DISTRUST else "check", (reason,))',
        'Judgement("do not trust" if error < _DISTRUST else "check", (reason,))',
        _VERDICT,
    ),
    Mutant(
        "posterior/diagnostics.py",
        "if mean <= BIAS_CHECK and largest <= BIAS_CHECK_ROW:",
        "if mean <= BIAS_CHECK or largest <= BIAS_CHECK_ROW:",
        _VERDICT,
    ),
    Mutant(
        "posterior/diagnostics.py",
        "return _against(-ess_per_draw, -ESS_DISTRUST, reason)",
        "return _against(ess_per_draw, ESS_DISTRUST, reason)",
        _VERDICT,
    ),
)


def main(numbers: list[int]) -> int:
    """Try the faults of these numbers, all without any; return how many went unnoticed."""
    chosen = numbers or list(range(1, len(MUTANTS) + 1))
    unnoticed = []
    with tempfile.TemporaryDirectory() as folder:
        # A compiled programme is known by its text, so what the fault leaves alone is not compiled
        # again and again.
        environment = os.environ | {
            "PYTHONPATH": f"{folder}/src",
            "JAX_COMPILATION_CACHE_DIR": f"{folder}/compiled",
        }
        for name in ("src", "tests", "pyproject.toml"):
            source = ROOT / name
            copy = shutil.copytree if source.is_dir() else shutil.copy2
            copy(source, Path(folder) / name)
        _say("| no. | place | what became of it | noticed by | seconds |")
        _say("|---|---|---|---|---|")
        for number in chosen:
            mutant = MUTANTS[number - 1]
            begun = time.monotonic()
            by = _noticed_by(mutant, Path(folder), environment)
            if by is None:
                unnoticed.append(number)
            seconds = time.monotonic() - begun
            after = mutant.after.replace("|", "\\|")
            by = by or "**nobody**"
            _say(f"| {number} | `{mutant.file}` | `{after}` | {by} | {seconds:.0f} |")
    _say(f"\n{len(chosen) - len(unnoticed)} of {len(chosen)} faults were noticed.")
    return len(unnoticed)


def _noticed_by(mutant: Mutant, folder: Path, environment: dict[str, str]) -> str | None:
    """Put a fault into the copy, run its tests, and mend it; return the test that failed."""
    file = folder / "src" / "permvi" / mutant.file
    text = file.read_text(encoding="utf-8")
    assert text.count(mutant.before) == 1, f"{mutant.file} must have one {mutant.before!r}"
    # The size differs as a rule, but the time always does, by which numba knows stale code.
    file.write_text(text.replace(mutant.before, mutant.after), encoding="utf-8")
    tests = [f"tests/{name}" for name in mutant.tests]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow"]
    try:
        done = subprocess.run(
            [*command, *tests],
            cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "no end"
    finally:
        file.write_text(text, encoding="utf-8")
    if done.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) \S*?(\w+\.py::\w+)", done.stdout, re.MULTILINE)
    assert failed, done.stdout + done.stderr
    return f"`{failed[1]}`"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main([int(word) for word in sys.argv[1:]]) > MOST_UNNOTICED)
