"""The numbers in the cells of a CSV file, with decimal points or decimal commas."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from permvi._cli.csv_rows import Row, at

NO_WORDS: Mapping[str, float] = {}


def is_number(text: str) -> bool:
    """Whether a text is a number with either decimal mark."""
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True


class Numbers:
    """The numbers of rows, one row at a time, with one decimal mark in the whole file.

    A decimal comma is possible where another character separates the cells.

    Args:
        path: The file.
        separator: What separates its cells.
        header: The names of all columns.
        words: Text that stands for a number, in lower case.
        skip: How many cells of a row come before its numbers.
    """

    def __init__(
        self,
        path: Path,
        separator: str,
        header: Sequence[str],
        words: Mapping[str, float] = NO_WORDS,
        skip: int = 1,
    ) -> None:
        self._path = path
        self._separator = separator
        self._header = header
        self._words = words
        self._skip = skip
        # Decimal mark -> where it was first seen.
        self._marks: dict[str, str] = {}

    def of(self, row: Row) -> np.ndarray:
        """The numbers of a row, NaN for empty cells.

        Raises:
            ValueError: A cell is no number.
        """
        cells = row.cells[self._skip :]
        joined = " ".join(cells)
        if self._separator != ",":
            for mark in ",.":
                if mark in joined and mark not in self._marks:
                    self._note(mark, row)
            if "," in joined:
                cells = [cell.replace(",", ".") for cell in cells]
        # Python would read 1_000 as a thousand.
        if "_" not in joined:
            try:
                values = np.array([float(cell) if cell else math.nan for cell in cells])
            except ValueError:
                pass
            else:
                if np.count_nonzero(np.isnan(values)) == cells.count(""):
                    return values
        return np.array([self._number(row, k, cell) for k, cell in enumerate(cells, self._skip)])

    def _number(self, row: Row, k: int, text: str) -> float:
        """The same for cell k alone, slowly, or the answer to what it holds."""
        text = text.strip()
        if not text:
            return math.nan
        if text.lower() in self._words:
            return self._words[text.lower()]
        try:
            value = math.nan if "_" in text else float(text)
        except ValueError:
            value = math.nan
        if math.isnan(value):
            place = at(self._path, row.line, k + 1, self._header[k].strip())
            raise ValueError(f"{place}: expected a number, got {row.cells[k]!r:.60}.")
        return value

    def _note(self, mark: str, row: Row) -> None:
        k = next(k for k, cell in enumerate(row.cells) if k >= self._skip and mark in cell)
        place = f"{row.cells[k]!r:.60} in line {row.line}, column {k + 1}"
        for other in self._marks.values():
            raise ValueError(f"{self._path}: expected one decimal mark, got {other} and {place}.")
        self._marks[mark] = place
