"""Measure the error of the stick-breaking log-determinant against exact arithmetic.

``python -m benchmarks.precision`` prints the table of docs/mathematics/stick_breaking.md.
"""

import jax
import jax.numpy as jnp
import numpy as np

from permvi import transforms
from tests import oracles

CASES = [(40, 1), (40, 5), (80, 5), (40, 20), (50, 20), (40, 50), (40, 100)]


def rows(*, repeats: int = 5) -> list[dict[str, object]]:
    """Measure errors over ``repeats`` draws of normal logits, for each size, sd and dtype."""
    found = []
    for n, sd in CASES:
        logits = sd * np.random.default_rng(n + sd).normal(size=(repeats, n - 1, n - 1))
        for dtype in (jnp.float32, jnp.float64):
            rounded = np.asarray(jnp.asarray(logits, dtype), np.float64)
            exact = np.array(
                [oracles.birkhoff_log_det(one, digits=150 + 12 * sd) for one in rounded]
            )
            _, log_det = transforms.stick_breaking(jnp.asarray(logits, dtype))
            errors = np.abs(np.asarray(log_det, np.float64) - exact)
            found.append(
                {
                    "n": n,
                    "sd": sd,
                    "dtype": jnp.dtype(dtype).name,
                    "log_det": float(exact.mean()),
                    "median_error": float(np.median(errors)),
                    "largest_error": float(errors.max()),
                    "allowed": float(1e-2 + 1e-6 * np.abs(exact).min()),
                }
            )
    return found


def main() -> None:
    """Print the table in Markdown."""
    jax.config.update("jax_enable_x64", True)
    print("| N | logit sd | dtype | log-determinant | median error | largest error |")
    print("|---|---|---|---|---|---|")
    for row in rows():
        print(
            f"| {row['n']} | {row['sd']} | {row['dtype']} | {row['log_det']:.4g} "
            f"| {row['median_error']:.1e} | {row['largest_error']:.1e} |"
        )


if __name__ == "__main__":
    main()
