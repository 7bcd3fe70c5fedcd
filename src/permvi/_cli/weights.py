"""From the numbers of a table to log weights of pairs."""

import numpy as np

from permvi._checks import one_of
from permvi._cli.csv_tables import Table
from permvi._cli.kinds import KINDS, SCALED

_EXPECTED = {
    "scores": "a score below infinity",
    "costs": "a cost above minus infinity",
    "log-odds": "log odds below infinity (certain pairs go to --known)",
    "probabilities": "a probability from 0 to below 1 (certain pairs go to --known)",
    "row-probabilities": "a probability from 0 to 1",
}
# Probabilities of a row that were rounded may add up to a little more than one.
_ROUNDING = 0.05


def check_kind(option: str, kind: str, temperature: float) -> None:
    """Refuse a kind that does not exist, or a temperature that it has no use for."""
    one_of(option, kind, KINDS)
    if not 0 < temperature < np.inf:
        raise ValueError(f"temperature must be positive, got {temperature}.")
    if temperature != 1 and kind not in SCALED:
        raise ValueError(
            f"temperature must be 1 unless kind is {' or '.join(map(repr, SCALED))}, got "
            f"{temperature:g} with {kind!r}."
        )


def log_weight(value: np.ndarray, kind: str, temperature: float = 1.0) -> np.ndarray:
    r"""The log weight of each number: what it adds to the log probability of a matching.

    :math:`s/T` for scores, :math:`-c/T` for costs, :math:`o` for log odds,
    :math:`\log p - \log(1-p)` for probabilities and :math:`\log p` for those of a row.

    Args:
        value: Numbers of any shape; NaN (an empty cell) forbids.
        kind: A name from `KINDS`.
        temperature: T.

    Returns:
        Log weights below infinity, -inf for what is forbidden, and NaN for what is no such number.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        if kind in SCALED:
            weight = (value if kind == "scores" else -value) / temperature
        elif kind == "log-odds":
            weight = value
        elif kind == "probabilities":
            weight = np.log(value) - np.log1p(-value)
        else:
            weight = np.where(value <= 1, np.log(value), np.nan)
    weight = np.where(weight == np.inf, np.nan, weight)
    return np.where(np.isnan(value), -np.inf, weight)


def table_weights(table: Table, kind: str, temperature: float = 1.0) -> np.ndarray:
    """(n, m) log weights of the pairs of a table, -inf for those that are forbidden.

    Raises:
        ValueError: A number is not of this kind.
    """
    weights = log_weight(table.values, kind, temperature)
    bad = np.argwhere(np.isnan(weights))
    if len(bad):
        i, j = map(int, bad[0])
        raise ValueError(
            f"{table.place(i, j)}: expected {_EXPECTED[kind]}, got {table.values[i, j]:g}."
        )
    return weights


def one_weight(option: str, value: float, kind: str, temperature: float = 1.0) -> float:
    """The log weight of a number that an option gives.

    Raises:
        ValueError: It is not of this kind.
    """
    weight = float("nan") if np.isnan(value) else log_weight(np.array(value), kind, temperature)
    if np.isnan(weight):
        raise ValueError(f"{option} must be {_EXPECTED[kind]}, got {value:g}.")
    return float(weight)


def look_like_distributions(table: Table) -> bool:
    """Whether the rows of a table of probabilities add up to one, which single pairs do not."""
    sums = np.nansum(table.values, axis=1)
    return table.values.shape[1] > 1 and bool(np.all(np.abs(sums - 1) < 1e-6))


def check_sums(table: Table, kind: str) -> None:
    """Refuse rows that should be distributions over labels and cannot be."""
    if kind != "row-probabilities":
        return
    sums = np.nansum(table.values, axis=1)
    row = int(np.argmax(sums))
    if sums[row] > 1 + _ROUNDING:
        raise ValueError(
            f"{table.row_place(row)}: expected probabilities that add up to 1 at "
            f"most, got {sums[row]:.4g}; --kind probabilities judges each pair by itself."
        )
