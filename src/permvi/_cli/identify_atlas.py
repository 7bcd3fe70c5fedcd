"""``permvi identify --atlas``: the identities of cells by an atlas of their features."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from permvi._cli import advice, identify_results, results, terminal
from permvi._cli.identify_files import Canonical, Recording
from permvi._cli.identify_inputs import known_pairs, left_out, read_known
from permvi._cli.identify_results import Worm
from permvi.inference.method import Progress
from permvi.models import Animal, Atlas, AtlasMatching, read_animals
from permvi.models.atlas.deformation import log_densities
from permvi.models.atlas.widths import infer_widths
from permvi.report import cells as cells_report

NO_ALIGNMENT = "none"
_SAVED = ".npz"
# From the best to the worst.
_VERDICTS = ("trust", "check", "do not trust")


class Inputs(NamedTuple):
    """The atlas, the animals to identify, and notes on how files were read."""

    atlas: Atlas
    animals: list[Animal]
    notes: list[str]


class Identified(NamedTuple):
    """The result of one animal."""

    worm: Worm
    model: AtlasMatching
    animal: Animal

    @property
    def places(self) -> np.ndarray:
        """The coordinates (n, q) of the cells, in the frame of the atlas."""
        table = self.model.cells
        if self.model.align is not None:
            table = self.model.in_atlas(self.worm.posterior.latents["frame"].mean)
        return table[:, : self.model.atlas.num_positions]


def read_inputs(
    atlas_files: Sequence[Path], cell_files: Sequence[Path], features: str | None
) -> Inputs:
    """Load or learn the atlas, and read the animals."""
    chosen = None if features is None else [name.strip() for name in features.split(",")]
    notes: list[str] = []
    if len(atlas_files) == 1 and atlas_files[0].suffix == _SAVED:
        if chosen is not None:
            raise ValueError(
                f"--features must go with labelled animals, got it with {atlas_files[0]}."
            )
        atlas = Atlas.load(atlas_files[0])
    else:
        animals = read_animals(*atlas_files)
        atlas = Atlas.fit(animals, features=chosen)
        shape = ", ".join(f"{name} {value:g}" for name, value in atlas.settings.items())
        notes.append(f"atlas: learnt from {len(animals)} animals; {shape}, by cross-validation.")
    coordinates = ", ".join(atlas.features[: atlas.num_positions]) or "none"
    others = ", ".join(atlas.features[atlas.num_positions :]) or "none"
    notes.append(
        f"atlas: {len(atlas.labels)} labels; coordinates: {coordinates}; other features: {others}."
    )
    found: dict[str, Animal] = {}
    for path in cell_files:
        for animal in read_animals(path):
            if animal.animal in found:
                raise ValueError(
                    f"{path}: expected a name of its own for each animal, got "
                    f"{animal.animal!r:.60} again."
                )
            found[animal.animal] = animal.using(atlas.features)
    named = [animal for animal in found.values() if any(animal.names)]
    if named:
        notes.append(
            f"names of cells in {len(named)} of {len(found)} animals are ignored; give those that "
            "are certain with --known."
        )
    return Inputs(atlas, list(found.values()), notes)


def _as_recordings(animals: Sequence[Animal]) -> list[Recording]:
    """Return animals as recordings without activity, for the readers of known identities."""
    nothing = np.zeros((0, 0))
    return [Recording(Path(one.animal), one.animal, one.ids, nothing) for one in animals]


def identify_cells(
    inputs: Inputs,
    *,
    align: str,
    known: Path | None,
    method: str,
    seed: int,
    progress: Progress,
    asked: dict[str, Any],
    of_method: dict[str, Any],
) -> list[Identified]:
    """Fit each animal."""
    atlas, animals = inputs.atlas, inputs.animals
    pairs = [np.full(len(animal), -1) for animal in animals]
    if known is not None:
        records = read_known(known)
        recordings = _as_recordings(animals)
        canonical = Canonical("the atlas", atlas.labels, np.zeros((0, 0), bool))
        pairs = known_pairs(records, recordings, canonical)
        inputs.notes.extend(left_out(records, recordings))
    found = []
    for animal, given in zip(animals, pairs, strict=True):
        model = AtlasMatching(animal, atlas, align=_align(align), known=given)
        settings = {**asked, "animal": animal.animal}
        posterior = results.fit(model, method, seed, progress, settings, **of_method)
        found.append(Identified(Worm(animal.animal, given >= 0, posterior), model, animal))
    return found


def _align(align: str) -> Any:
    return None if align == NO_ALIGNMENT else align


def feature_scores(
    inputs: Inputs, recordings: Sequence[Recording], canonical: Canonical, align: str, seed: int
) -> list[np.ndarray]:
    """Return log densities (n, m) of recorded neurons' features under canonical neurons.

    The cells of the animal with the name of a recording have the names of its neurons. Canonical
    neurons that the atlas lacks have the density of the background. With ``align``, an animal's
    cells are placed by the posterior mean of its frame.
    """
    atlas = inputs.atlas
    by_name = {animal.animal: animal for animal in inputs.animals}
    place = {name: j for j, name in enumerate(atlas.labels)}
    shared = [(k, place[name]) for k, name in enumerate(canonical.names) if name in place]
    if not shared:
        raise ValueError(f"--atlas must share names with {canonical.source}, got none.")
    tables = []
    for recording in recordings:
        animal = by_name.get(recording.worm)
        if animal is None:
            raise ValueError(
                f"--cells must have the cells of {recording.path}, got no animal "
                f"{recording.worm!r:.60}."
            )
        rows = {cell: i for i, cell in enumerate(animal.ids)}
        missing = [name for name in recording.neurons if name not in rows]
        if missing:
            raise ValueError(
                f"--cells must have each neuron of {recording.path}, got no {missing[0]!r:.60}."
            )
        table = animal.cells
        if align != NO_ALIGNMENT:
            model = AtlasMatching(animal, atlas, align=_align(align))
            aligned = results.fit(model, "auto", seed, terminal.silent, {})
            table = model.in_atlas(aligned.latents["frame"].mean)
            frame = f"{recording.worm}: frame {aligned.diagnostics.verdict}"
            inputs.notes.append(f"{frame} ({aligned.diagnostics.reasons[0]}).")
        found = log_densities(atlas, table, infer_widths(atlas, table)) + atlas.log_odds
        recorded = [rows[name] for name in recording.neurons]
        scores = np.repeat(
            atlas.log_background(table[recorded])[:, None], len(canonical.names), axis=1
        )
        columns, labels = map(list, zip(*shared, strict=True))
        scores[:, columns] = found[np.ix_(recorded, labels)]
        tables.append(scores)
    return tables


def worst_of(found: Sequence[Identified]) -> tuple[str, str]:
    """Return the worst verdict of all animals, and its first reason."""
    all_found = [one.worm.posterior.diagnostics for one in found]
    worst = max(all_found, key=lambda each: _VERDICTS.index(each.verdict))
    return worst.verdict, advice.in_commands(worst.reasons[0])


def as_object(found: Sequence[Identified], level: float) -> dict[str, Any]:
    """Return the whole result as one JSON object."""
    verdict, reason = worst_of(found)
    return {
        "verdict": verdict,
        "reasons": [reason],
        "worms": [
            {
                "worm": one.worm.name,
                **results.verdict_of(one.worm.posterior),
                "neurons": identify_results.neurons_of(one.worm, level),
                "identities": [
                    {"identity": name, "p_unrecorded": p}
                    for name, p in zip(
                        one.model.atlas.labels,
                        one.worm.posterior.p_unmatched_cols.tolist(),
                        strict=True,
                    )
                ],
                **_frame_of(one),
            }
            for one in found
        ],
        **results.record_of(found[0].worm.posterior, level),
    }


def _frame_of(one: Identified) -> dict[str, Any]:
    """Return the frame that was inferred: features, matrices from them and 1, and their sd."""
    latent = one.worm.posterior.latents.get("frame")
    if latent is None:
        return {}
    features = list(one.model.atlas.features)
    frame = {"features": features, "mean": latent.mean.tolist(), "sd": latent.sd.tolist()}
    return {"frame": frame}


def write_reports(path: Path, found: Sequence[Identified], level: float) -> None:
    """Write a report with pictures of the cells; with several animals one for each."""
    for one in found:
        target = results.part_of(path, None if len(found) == 1 else one.worm.name)
        n, m = one.worm.posterior.shape
        cells_report.write(
            advice.translated(one.worm.posterior),
            target,
            places=one.places,
            axes=one.model.atlas.features[: one.model.atlas.num_positions],
            title=f"{one.worm.name}: {n} cells, {m} identities",
            level=level,
            known=one.worm.known,
        )


def save(path: Path, found: Sequence[Identified]) -> None:
    """Save posteriors; with several animals one for each."""
    for one in found:
        one.worm.posterior.save(results.part_of(path, None if len(found) == 1 else one.worm.name))


def show(found: Sequence[Identified], level: float) -> None:
    """Print the cells of all animals, each with its verdict."""
    for one in found:
        rows = []
        for row in identify_results.neurons_of(one.worm, level):
            cells = results.label_cells({**row, "best": row["identity"]})
            rows.append([row["neuron"], "yes" if row["known"] else "", *cells])
        heading = f"Which cell is it? ({one.worm.name})"
        header = ["cell", "known", "identity", *results.label_columns(level)]
        terminal.table(heading, header, rows, fold=False)
        terminal.lines(results.facts_of(one.worm.posterior))
