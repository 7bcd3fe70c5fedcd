"""The connectome of the worm C. elegans (Varshney et al. 2011), with soma positions and types."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from permvi.datasets.registry import find

TYPES = ("sensory", "motor", "interneuron")

# Types of connections that count: sent (by one neuron, or by several) and electrical. Received ones
# list the same contacts again from the other end, and muscles (NMJ) are not neurons.
_SENT = ("S", "Sp")
_ELECTRICAL = "EJ"


@dataclass(frozen=True, eq=False)
class Connectome:
    """The somatic nervous system of the hermaphrodite, neurons in alphabetical order.

    Attributes:
        names: (n,) names of the neurons, numbers padded to two digits (VA01).
        positions: (n,) soma positions along the body, 0 at the nose and 1 at the tail, as in the
            file: multiples of 0.01, many of them tied.
        regions: (n,) "H" (head), "M" (mid-body) or "T" (tail).
        types: (n, 3) booleans, whether a neuron is sensory, motor, an interneuron; several may
            hold.
        chemical: (n, n) numbers of synapses from the row's neuron to the column's.
        gap: (n, n) numbers of gap junctions, symmetric; a few neurons have one with themselves.
    """

    names: tuple[str, ...]
    positions: np.ndarray
    regions: tuple[str, ...]
    types: np.ndarray
    chemical: np.ndarray
    gap: np.ndarray

    @property
    def adjacency(self) -> np.ndarray:
        """(n, n) booleans: two different neurons share a synapse, either way, or a gap junction."""
        either = (self.chemical > 0) | (self.gap > 0)
        merged = either | either.T
        np.fill_diagonal(merged, val=False)
        return merged

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        edges = int(self.adjacency.sum()) // 2
        return f"Connectome({len(self)} neurons, {edges} undirected edges)"


def celegans(*, paper: bool = False) -> Connectome:
    """Load the connectome of C. elegans.

    Args:
        paper: Whether to leave out the last neuron, VD13, as Linderman et al. (2018) did: 278
            neurons with 2276 undirected edges instead of 279 with 2287.

    Raises:
        ValueError: The contents of a file are invalid.
        FileNotFoundError: A file is missing and could not be downloaded.

    References:
        Varshney, Chen, Paniagua, Hall, Chklovskii (2011). Structural properties of the
        Caenorhabditis elegans neuronal network. PLoS Computational Biology 7.
    """
    neurons = find("celegans/NeuronType.csv")
    rows = _read(neurons)
    header = [cell.strip() for cell in rows[0]]
    columns = [
        _column(neurons, header, name) for name in ("Neuron", "Soma Position", "Soma Region")
    ]
    table = sorted(tuple(row[column].strip() for column in columns) for row in rows[1:])
    if paper:
        table = table[:-1]
    names = tuple(name for name, _, _ in table)
    if len(set(names)) != len(names):
        raise ValueError(f"{neurons.name} must name each neuron once, got one twice.")
    try:
        positions = np.array([float(position) for _, position, _ in table])
    except ValueError as error:
        raise ValueError(f"{neurons.name} must hold numbers as positions: {error}.") from None
    chemical, gap = _connections(names)
    positions.flags.writeable = False
    return Connectome(
        names=names,
        positions=positions,
        regions=tuple(region for _, _, region in table),
        types=_types(names),
        chemical=chemical,
        gap=gap,
    )


def _connections(names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of chemical and of electrical contacts between the neurons with these names."""
    place = {name: index for index, name in enumerate(names)}
    chemical, gap = np.zeros((2, len(names), len(names)), int)
    path = find("celegans/NeuronConnect.csv")
    for row in _read(path)[1:]:
        if len(row) < 4 or not row[3].strip().isdigit():
            raise ValueError(f"{path.name} must have rows 'from,to,type,number', got {row}.")
        # One row has its names in lower case.
        sender, receiver = (place.get(cell.strip().upper()) for cell in row[:2])
        if sender is None or receiver is None:
            continue
        if row[2] in _SENT:
            chemical[sender, receiver] += int(row[3])
        elif row[2] == _ELECTRICAL:
            gap[sender, receiver] += int(row[3])
    if not np.array_equal(gap, gap.T):
        raise ValueError(f"{path.name} must list each gap junction from both ends, got one once.")
    chemical.flags.writeable = gap.flags.writeable = False
    return chemical, gap


def _types(names: tuple[str, ...]) -> np.ndarray:
    """The types of neurons from their descriptions; two files complement each other."""
    described: dict[str, str] = {}
    for name in ("NeuronTypeISM.csv", "NeuronRemainingTypesISM.csv"):
        for row in _read(find(f"celegans/{name}")):
            if row:
                described[row[0]] = f"{described.get(row[0], '')} {row[-1].lower()}"
    # These files write VA1 for VA01.
    texts = [described.get(re.sub(r"0(\d)$", r"\1", name), "") for name in names]
    types = np.array([[kind in text for kind in TYPES] for text in texts])
    types.flags.writeable = False
    return types


def _read(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if row]


def _column(path: Path, header: list[str], name: str) -> int:
    if name not in header:
        raise ValueError(f"{path.name} must have a column {name!r}, got {header!r:.80}.")
    return header.index(name)
