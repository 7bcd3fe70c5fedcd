"""Slow, obvious versions of what permvi computes fast; they share no code with it."""

import mpmath
import numpy as np


def birkhoff_raster_scan(psi, temperature=1.0):
    """The paper's stick-breaking, entry by entry with its own bounds (section 3.1), in float64."""
    K = psi.shape[0]
    N = K + 1
    beta = 1 / (1 + np.exp(-np.asarray(psi, np.float64) / temperature))
    X = np.zeros((N, N))
    for m in range(K):
        for n in range(K):
            # With the paper's 1-based n, its bound 1 - N + n has n + 1 here.
            lower = 1 - N + (n + 1) - X[m, :n].sum() + X[:m, n + 1 :].sum()
            lower = max(0.0, lower)
            upper = min(1 - X[m, :n].sum(), 1 - X[:m, n].sum())
            X[m, n] = lower + beta[m, n] * (upper - lower)
        X[m, K] = 1 - X[m, :K].sum()
    X[K] = 1 - X[:K].sum(0)
    return X


def birkhoff_log_det(logits, digits):
    """Log-determinant of stick-breaking at temperature 1, in arithmetic of so many digits."""
    with mpmath.workdps(digits):
        K = logits.shape[0]
        zero, one = mpmath.mpf(0), mpmath.mpf(1)
        columns = [one] * (K + 1)
        product, log_det = one, zero
        for m in range(K):
            row, beyond = one, mpmath.fsum(columns)
            for n in range(K):
                beyond -= columns[n]
                small = mpmath.exp(-abs(mpmath.mpf(float(logits[m, n]))))
                share = (one if logits[m, n] > 0 else small) / (1 + small)
                lower = max(zero, row - beyond)
                width = min(row, columns[n]) - lower
                product *= width * small / (1 + small) ** 2
                entry = lower + share * width
                row -= entry
                columns[n] -= entry
            columns[K] -= row
            log_det += mpmath.log(product)
            product = one
        return float(log_det)
