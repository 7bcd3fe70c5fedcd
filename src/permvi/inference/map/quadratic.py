"""Quadratic log densities of matchings, on the host in float64."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Quadratic:
    r"""``<A, X B X'> + <C, X> + constant``, with ``X[i, j] = 1`` where ``perm[i] = j``.

    Attributes:
        A: (n, n) weights of ordered pairs of rows.
        B: (m, m) weights of ordered pairs of columns.
        C: (n, m) weights of pairs.
        constant: What all matchings have.
    """

    A: np.ndarray
    B: np.ndarray
    C: np.ndarray
    constant: float = 0.0

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return self.C.shape[0], self.C.shape[1]

    def given(
        self, settled: np.ndarray, free_rows: np.ndarray, free_cols: np.ndarray
    ) -> "Quadratic":
        r"""The same for the rest of the rows and columns, some pairs being known.

        A known pair (s, t) adds ``A[i, s] B[j, t] + A[s, i] B[t, j]`` to the weight of the pair
        (i, j), so the rest is quadratic again.

        Args:
            settled: (n,) the known columns, -1 for others.
            free_rows: (n') the rows that are left.
            free_cols: (m') the columns that are left.
        """
        rows = np.flatnonzero(settled >= 0)
        cols = settled[rows]
        A, B = self.A, self.B
        outwards = A[np.ix_(free_rows, rows)] @ B[np.ix_(free_cols, cols)].T
        inwards = A[np.ix_(rows, free_rows)].T @ B[np.ix_(cols, free_cols)]
        known = (A[np.ix_(rows, rows)] * B[np.ix_(cols, cols)]).sum() + self.C[rows, cols].sum()
        return Quadratic(
            A[np.ix_(free_rows, free_rows)],
            B[np.ix_(free_cols, free_cols)],
            self.C[np.ix_(free_rows, free_cols)] + outwards + inwards,
            self.constant + float(known),
        )

    def padded(self) -> "Quadratic":
        """The same as a square problem: rows and columns without weights take what is left over."""
        size = max(self.shape)
        A, B, C = (np.zeros((size, size)) for _ in range(3))
        n, m = self.shape
        A[:n, :n], B[:m, :m], C[:n, :m] = self.A, self.B, self.C
        return Quadratic(A, B, C, self.constant)

    def values(self, perms: np.ndarray) -> np.ndarray:
        """(..., n) permutations of a square problem -> (...)."""
        rows = np.arange(self.shape[0])
        edges = (self.A * self.B[perms[..., :, None], perms[..., None, :]]).sum(axis=(-2, -1))
        return edges + self.C[rows, perms].sum(axis=-1) + self.constant

    def gradient(self, X: np.ndarray) -> np.ndarray:
        """``A X B' + A' X B + C``: (..., n, m) -> (..., n, m)."""
        return self.A @ X @ self.B.T + self.A.T @ X @ self.B + self.C

    def curvature(self, direction: np.ndarray) -> np.ndarray:
        """``<A, D B D'>``: (..., n, m) directions -> (...)."""
        return ((self.A @ direction @ self.B.T) * direction).sum(axis=(-2, -1))
