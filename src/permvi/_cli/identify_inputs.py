"""Build the model of ``permvi identify`` from its files and options."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from permvi._cli.csv_tables import Record, Records, read_records
from permvi._cli.identify_files import Canonical, Recording
from permvi._csv import at, check_width, read_rows
from permvi.experiments._worms import candidates
from permvi.models import SharedDynamics

_WORM, _NEURON, _IDENTITY, _DECISION = "worm", "neuron", "identity", "decision"
_AXES = (1, 3)


class Positions(NamedTuple):
    """The positions of recorded neurons and what they say about identities."""

    path: Path  # the file of positions
    # Identities further away than this along the body are impossible; None: no limit.
    tolerance: float | None
    # Standard deviations of positions around the canonical ones, one or one for each coordinate;
    # None: positions only exclude identities.
    spread: tuple[float, ...] | None


class Identification(NamedTuple):
    """The model of all recordings with its known identities."""

    model: SharedDynamics
    known: list[np.ndarray]  # for each worm (n,) canonical neurons, -1 for unknown
    notes: list[str]


def identification(
    recordings: Sequence[Recording],
    canonical: Canonical,
    *,
    positions: Positions | None = None,
    known: Path | None = None,
    weight_sd: float | None = None,
    noise_sd: float | None = None,
    features: Sequence[np.ndarray] | None = None,
) -> Identification:
    """Build the model of recordings, with each neuron's mean over time subtracted.

    ``known`` is a CSV file, see `read_known`. ``features`` are log densities (n, m) of other data
    of each worm, which are added.
    Standard deviations of weights and noise that are None are learned.
    """
    m = len(canonical.names)
    for recording in recordings:
        if len(recording.neurons) > m:
            raise ValueError(
                f"{recording.path}: expected at most {m} neurons, as many as {canonical.source} "
                f"has, got {len(recording.neurons)}."
            )
    notes: list[str] = []
    pairs = [np.full(len(recording.neurons), -1) for recording in recordings]
    if known is not None:
        records = read_known(known)
        pairs = known_pairs(records, recordings, canonical)
        notes += left_out(records, recordings)
    masks = [np.ones((len(recording.neurons), m), bool) for recording in recordings]
    scores = None
    if positions is not None:
        records = read_records(positions.path, (_WORM, _NEURON), optional=(_WORM,), numbers=_AXES)
        masks, scores = _from_positions(records, recordings, canonical, positions, pairs)
        notes += left_out(records, recordings)
    if features is not None:
        given_scores = scores or [np.zeros((1, m)) for _ in recordings]
        scores = [mine + other for mine, other in zip(given_scores, features, strict=True)]
    for recording, allowed, given in zip(recordings, masks, pairs, strict=True):
        _check_feasible(recording, allowed, given)
    names = {recording.neurons for recording in recordings}
    model = SharedDynamics(
        [each.activity - each.activity.mean(axis=0) for each in recordings],
        canonical.support,
        weight_scale=weight_sd,
        noise_scale=noise_sd,
        mask=None if all(mask.all() for mask in masks) else _of_one_or_all(masks),
        known=None if known is None else _of_one_or_all(pairs),
        prior_scores=None if scores is None else _of_one_or_all(scores),
        labels=(names.pop() if len(names) == 1 else None, canonical.names),
    )
    return Identification(model, pairs, notes)


def read_known(path: Path) -> Records:
    """Read known identities: ``worm,neuron,identity``, or a table to curate with decisions.

    The worm may be left out if there is only one. Of a table with a column ``decision``, the rows
    whose decision is not empty are known.
    """
    rows = read_rows(path).rows
    header = next(rows)
    columns = [cell.strip().lower() for cell in header.cells]
    if _DECISION not in columns:
        return read_records(path, (_WORM, _NEURON, _IDENTITY), optional=(_WORM,))
    if _NEURON not in columns:
        raise ValueError(
            f"{at(path, header.line)}: expected a column {_NEURON!r} beside {_DECISION!r}, got "
            f"{', '.join(columns)!r:.60}."
        )
    found = []
    for row in rows:
        check_width(path, row, len(columns))
        cells = dict(zip(columns, (cell.strip() for cell in row.cells), strict=True))
        if not cells[_DECISION]:
            continue
        names = {_NEURON: cells[_NEURON], _IDENTITY: cells[_DECISION]}
        if _WORM in cells:
            names[_WORM] = cells[_WORM]
        found.append(Record(row.line, names, np.zeros(0)))
    if not found:
        raise ValueError(f"{path}: expected a decision in some row, got none.")
    return Records(path, (), found)


def _of_one_or_all(arrays: list[np.ndarray]) -> np.ndarray | list[np.ndarray]:
    """Return constraints as the model takes them: one array, or one for each worm."""
    return arrays[0] if len(arrays) == 1 else arrays


def _from_positions(
    records: Records,
    recordings: Sequence[Recording],
    canonical: Canonical,
    positions: Positions,
    known: Sequence[np.ndarray],
) -> tuple[list[np.ndarray], list[np.ndarray] | None]:
    """Return for each worm the (n, m) mask of identities, and the log prior weights or None."""
    if canonical.positions is None:
        raise ValueError(
            f"--canonical-positions must be given with --positions, since {canonical.source} has "
            "none."
        )
    found = _by_worm(records, recordings)
    tables = []
    for recording, of_worm in zip(recordings, found, strict=True):
        missing = [name for name in recording.neurons if name not in of_worm]
        if missing:
            raise ValueError(
                f"{records.path}: expected a position of each neuron of {recording.path}, got none "
                f"of {missing[0]!r:.60}."
            )
        tables.append(np.stack([of_worm[name].values for name in recording.neurons]))
    places = _aligned(records, canonical)
    nu = np.inf if positions.tolerance is None else positions.tolerance
    masks = [candidates(table[:, 0], places[:, 0], nu) for table in tables]
    for recording, of_worm, mask, given in zip(recordings, found, masks, known, strict=True):
        rows = np.flatnonzero(given >= 0)
        # A known identity overrides the position.
        mask[rows, given[rows]] = True
        alone = np.flatnonzero(~mask.any(axis=1))
        if alone.size:
            name = recording.neurons[alone[0]]
            raise ValueError(
                f"{records.at(of_worm[name])}: expected a canonical neuron closer than {nu:g} to "
                f"{name!r:.60} of {recording.path}, got none; try a larger --tolerance."
            )
    if positions.spread is None:
        return masks, None
    return masks, _log_prior(tables, places, positions.spread, records)


def _aligned(records: Records, canonical: Canonical) -> np.ndarray:
    """Return the (m, d) canonical positions with the coordinates in the order of the file."""
    positions = np.asarray(canonical.positions)
    if not canonical.axes:
        return positions
    if set(canonical.axes) != set(records.columns):
        raise ValueError(
            f"{records.path}: expected the coordinates {', '.join(canonical.axes)!r:.60} of the "
            f"canonical positions, got {', '.join(records.columns)!r:.60}."
        )
    return positions[:, [canonical.axes.index(column) for column in records.columns]]


def _log_prior(
    tables: Sequence[np.ndarray], places: np.ndarray, spread: tuple[float, ...], records: Records
) -> list[np.ndarray]:
    """Return Gaussian log densities of positions up to a constant."""
    d = len(records.columns)
    if places.shape[1] != d:
        raise ValueError(
            f"{records.path}: expected {places.shape[1]} coordinate with --position-sd, as the "
            f"canonical positions have, got {d}."
        )
    if len(spread) not in (1, d):
        raise ValueError(
            f"--position-sd must be one number or one for each of {d} coordinates, got "
            f"{len(spread)} numbers."
        )
    sd = np.broadcast_to(spread, d)
    return [-0.5 * (((table[:, None] - places) / sd) ** 2).sum(axis=-1) for table in tables]


def _by_worm(records: Records, recordings: Sequence[Recording]) -> list[Mapping[str, Record]]:
    """Return for each worm the records of its neurons by name."""
    found: dict[str, dict[str, Record]] = {each.worm: {} for each in recordings}
    known = {each.worm: set(each.neurons) for each in recordings}
    for record in records.rows:
        worm = record.names.get(_WORM)
        if worm is None:
            if len(recordings) > 1:
                raise ValueError(
                    f"{records.path}: expected a column {_WORM!r} with {len(recordings)} "
                    "recordings, got none."
                )
            worm = recordings[0].worm
        if worm not in found:
            continue
        neuron = record.names[_NEURON]
        if neuron not in known[worm]:
            path = next(each.path for each in recordings if each.worm == worm)
            raise ValueError(
                f"{records.at(record)}: expected a neuron of {path}, got {neuron!r:.60}."
            )
        if neuron in found[worm]:
            raise ValueError(
                f"{records.at(record)}: expected each neuron of a worm once, got {neuron!r:.60} "
                f"again after line {found[worm][neuron].line}."
            )
        found[worm][neuron] = record
    if not any(found.values()):
        raise ValueError(
            f"{records.path}: expected rows of the worms {', '.join(found)!r:.60}, got none."
        )
    return [found[each.worm] for each in recordings]


def left_out(records: Records, recordings: Sequence[Recording]) -> list[str]:
    """Return a note on rows of worms without a recording, if there are any."""
    worms = {each.worm for each in recordings}
    others = [record.names.get(_WORM) for record in records.rows]
    others = [worm for worm in others if worm is not None and worm not in worms]
    if not others:
        return []
    return [
        f"{records.path}: {len(others)} rows are ignored because their worms have no recording: "
        f"{', '.join(dict.fromkeys(map(str, others))):.80}."
    ]


def known_pairs(
    records: Records, recordings: Sequence[Recording], canonical: Canonical
) -> list[np.ndarray]:
    """Return for each worm the (n,) known canonical neurons, -1 for unknown."""
    place = {name: k for k, name in enumerate(canonical.names)}
    known = []
    for recording, of_worm in zip(recordings, _by_worm(records, recordings), strict=True):
        taken: dict[str, Record] = {}
        pairs = np.full(len(recording.neurons), -1)
        for i, neuron in enumerate(recording.neurons):
            record = of_worm.get(neuron)
            if record is None:
                continue
            identity = record.names[_IDENTITY]
            if identity not in place:
                raise ValueError(
                    f"{records.at(record)}: expected a neuron of {canonical.source}, got "
                    f"{identity!r:.60}."
                )
            if identity in taken:
                first, second = sorted((taken[identity], record), key=lambda each: each.line)
                raise ValueError(
                    f"{records.at(second)}: expected each identity once in a worm, got "
                    f"{identity!r:.60} again after line {first.line}."
                )
            taken[identity] = record
            pairs[i] = place[identity]
        known.append(pairs)
    return known


def _check_feasible(recording: Recording, allowed: np.ndarray, known: np.ndarray) -> None:
    """Raise ``ValueError`` if the neurons of a worm cannot all have different identities."""
    open_rows = np.flatnonzero(known < 0)
    free = np.setdiff1d(np.arange(allowed.shape[1]), known)
    left = allowed[np.ix_(open_rows, free)]
    matched = maximum_bipartite_matching(csr_array(left), perm_type="column")
    stuck = np.flatnonzero(matched < 0)
    if stuck.size:
        raise ValueError(
            f"{recording.path}: expected an identity for each neuron within the tolerance, got "
            f"none left for {recording.neurons[open_rows[stuck[0]]]!r:.60}; try a larger "
            "--tolerance."
        )
