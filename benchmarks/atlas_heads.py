"""Neurons of heads: five raw ones, each with an atlas of the other four, and made-up ones.

Made-up heads have 185 names, of which 78 to 177 are seen, in clusters and in pairs left and right
of the middle; a few colours are shared by many. An animal differs from the others by a smooth
deformation, by independent t-distributed displacements that are larger for some labels than for
others, by a width of its own, and by a gain and an offset of each colour. Some names are exchanged
with that of a near cell. An atlas of twelve animals identifies four others, in the same
frame. `VARIANTS` make it harder.
"""

import dataclasses
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

import permvi as pv
from benchmarks.atlas_scores import Answer
from permvi.models import Animal, Atlas, AtlasMatching, align_animals
from permvi.models.atlas.frames import ALIGNMENTS

# A slice of the raw heads in pixels, by the sizes of the heads along both axes.
SLICE = 6.0
FEATURES = ("x", "y", "z", "red", "green", "blue")
NUM_LABELS, NUM_TESTED = 185, 4
FEWEST, MOST = 78, 177
# Deformations are sums of so many waves, over this length.
_WAVES, _LENGTH = 40, 15.0
# The largest share of exchanged names in tested animals.
_MISTAKES = 0.02


def read_heads() -> list[Animal]:
    """Return raw heads, with slices in pixels and logs of intensities."""
    heads = []
    for path in sorted((Path(os.environ["PERMVI_DATA"]) / "neuropal").glob("neuropal_worm*.csv")):
        (head,) = pv.models.read_animals(path)
        cells = np.column_stack([head.cells[:, :3] * [1, 1, SLICE], np.log(head.cells[:, 3:])])
        heads.append(Animal(cells, head.names, head.features))
    return heads


def answers_of_head(heads: Sequence[Animal], left_out: int) -> Iterator[tuple[str, Answer]]:
    """Yield answers for a raw head, given an atlas of the others; the last answer is "none".

    Answers of all cells count names as wrong that nobody gave, also where they may be right.
    """
    atlas = Atlas.fit(align_animals([head for k, head in enumerate(heads) if k != left_out]))
    names, m = heads[left_out].names, len(atlas.labels)
    truth = np.array([atlas.labels.index(n) if n in atlas.labels else m for n in names])
    for align in ALIGNMENTS:
        began = time.process_time()
        model = AtlasMatching(heads[left_out], atlas, align=align)
        posterior = pv.fit(model)
        seconds = time.process_time() - began
        table = np.column_stack([posterior.marginals, posterior.p_unmatched_rows])
        mode = np.where(posterior.mode < 0, m, posterior.mode)
        words = posterior.diagnostics.verdict, posterior.check(model).verdict, seconds
        yield f"head, {align}", Answer(table, mode, truth, *words)
        named = truth < m
        yield f"head, {align}, named cells", Answer(table[named], mode[named], truth[named], *words)
        yield (
            f"head, {align}, named labels",
            _by_label(posterior, np.where(named, truth, -1), words),
        )


def _by_label(posterior: Any, truth: np.ndarray, words: tuple[str, str, float]) -> Answer:
    """Return which cell each label is that the animal has, by all its cells.

    ``truth`` (n,) are the labels of cells, -1 where nobody gave one. Whether such a cell is a label
    that no cell has is not known, but it is none that another has. The last answer is "absent".
    """
    cells = np.flatnonzero(truth >= 0)
    wanted = truth[cells]
    n = len(truth)
    table = np.column_stack([posterior.marginals.T, posterior.p_unmatched_cols])[wanted]
    held = posterior.mode == wanted[:, None]
    mode = np.where(held.any(axis=1), held.argmax(axis=1), n)
    return Answer(table, mode, cells, *words)


@dataclasses.dataclass(frozen=True)
class Population:
    """What made-up heads are like; lengths are in micrometres, colours in logs of intensities.

    Attributes:
        deformation: The standard deviation of smooth displacements, over some 15 micrometres.
        jitter: The median scale of independent displacements.
        df: Their degrees of freedom, and those of colours.
        colour_noise: The median scale of colours.
        exchanged: The share of names in training that are exchanged; at most .02 in tested animals.
        training: The number of animals in the atlas.
        nameless: The expected number of cells that are in no atlas.
    """

    deformation: float = 2.0
    jitter: float = 2.0
    df: float = 5.0
    colour_noise: float = 0.45
    exchanged: float = 0.02
    training: int = 12
    nameless: float = 0.0


VARIANTS = {
    "heads": Population(),
    "heads, correlated": Population(deformation=2.7, jitter=1.5),
    "heads, strongly correlated": Population(deformation=4.0, jitter=1.0),
    "heads, heavy tails": Population(df=2.5, jitter=1.5, colour_noise=0.35),
    "heads, exchanged names": Population(exchanged=0.1),
    "heads, five in the atlas": Population(training=5),
    "heads, a quarter in no atlas": Population(nameless=40.0),
}


class _Labels:
    """Where labels lie, which colours they have, and how often they are seen."""

    def __init__(self, kind: Population, rng: np.random.Generator) -> None:
        self.kind, self.rng = kind, rng
        pairs = (NUM_LABELS + 1) // 2
        ganglia = rng.normal(size=(9, 3)) * [28.0, 5.0, 8.0] + [0.0, 7.0, 0.0]
        places = ganglia[rng.integers(9, size=pairs)] + rng.normal(size=(pairs, 3)) * [9, 3, 4.5]
        palette = rng.normal(size=(14, 3)) * 0.9
        colours = palette[rng.integers(14, size=pairs)] + 0.2 * rng.normal(size=(pairs, 3))
        mirrored = np.concatenate([places, places * [1, -1, 1] + 0.7 * rng.normal(size=(pairs, 3))])
        both = np.concatenate([mirrored, np.tile(colours, (2, 1))], axis=1)
        self.means = both[:NUM_LABELS]
        self.sizes = np.exp(0.35 * rng.normal(size=(NUM_LABELS, 2)))
        self.log_odds = 0.6 + 1.2 * rng.normal(size=NUM_LABELS)

    def animal(self, exchanged: float) -> Animal:
        """Draw one animal, with this share of its names exchanged."""
        kind, rng = self.kind, self.rng
        seen = np.zeros(0, int)
        while not FEWEST <= len(seen) <= MOST:
            shown = self.log_odds + 0.7 * rng.normal()
            seen = np.flatnonzero(rng.random(NUM_LABELS) < 1 / (1 + np.exp(-shown)))
        extra = rng.poisson(kind.nameless)
        near = rng.integers(NUM_LABELS, size=extra)
        away = rng.normal(size=(extra, 6)) * [6, 6, 6, 1, 1, 1]
        means = np.concatenate([self.means[seen], self.means[near] + away])
        sizes = np.concatenate([self.sizes[seen], np.ones((extra, 2))])
        scales = np.repeat(sizes * [kind.jitter, kind.colour_noise], 3, axis=1)
        width = np.repeat(np.exp(0.2 * rng.normal(size=2)), 3)
        noise = rng.normal(size=means.shape) / np.sqrt(
            rng.chisquare(kind.df, size=means.shape) / kind.df
        )
        cells = means + width * scales * noise
        cells[:, :3] += self._deformation(means[:, :3])
        cells[:, 3:] = np.exp(0.1 * rng.normal(size=3)) * cells[:, 3:] + 0.15 * rng.normal(size=3)
        names = [f"N{j:03d}" for j in seen] + [None] * extra
        for i in np.flatnonzero(rng.random(len(seen)) < exchanged / 2).tolist():
            apart = ((means[: len(seen), :3] - means[i, :3]) ** 2).sum(axis=1)
            # One of the three nearest cells.
            other = int(np.argsort(apart)[1 + rng.integers(3)])
            names[i], names[other] = names[other], names[i]
        return Animal(cells, tuple(names), FEATURES)

    def _deformation(self, places: np.ndarray) -> np.ndarray:
        """Return smooth displacements (n, 3) at places: a sum of random waves."""
        rng = self.rng
        waves, phases = (
            rng.normal(size=(3, _WAVES, 3)) / _LENGTH,
            rng.uniform(0, 2 * np.pi, (3, _WAVES)),
        )
        heights = np.cos(np.einsum("kwc,nc->nkw", waves, places) + phases)
        weights = rng.normal(size=(3, _WAVES))
        return self.kind.deformation * np.sqrt(2 / _WAVES) * (heights * weights).sum(axis=-1)


def of_simulated(
    draws: int, stream: int, variants: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any], str, Answer]]:
    """Yield the answers for made-up heads of each of the variants, in so many populations."""
    for v, (variant, kind) in enumerate(VARIANTS.items()):
        if variant not in variants:
            continue
        for draw in range(draws):
            labels = _Labels(kind, np.random.default_rng([stream, v, draw]))
            atlas = Atlas.fit([labels.animal(kind.exchanged) for _ in range(kind.training)])
            for k in range(NUM_TESTED):
                head = labels.animal(min(kind.exchanged, _MISTAKES))
                for method, answer in _identified(head, atlas):
                    yield variant, {"animal": draw * NUM_TESTED + k, "draw": 0}, method, answer


def _identified(head: Animal, atlas: Atlas) -> Iterator[tuple[str, Answer]]:
    """Yield answers for the cells with names of the atlas; the last label is "none"."""
    m = len(atlas.labels)
    place = {name: j for j, name in enumerate(atlas.labels)}
    truth = np.array([m if name is None else place.get(name, m) for name in head.names])
    began = time.process_time()
    model = AtlasMatching(head, atlas)
    posterior = pv.fit(model)
    seconds = time.process_time() - began
    alone = np.where(np.eye(len(head), dtype=bool), model.row_unmatched[:, None], -1e9)
    best = linear_sum_assignment(np.concatenate([model.scores, alone], axis=1), maximize=True)[1]
    best = np.minimum(best, m)
    yield "assignment", Answer(np.eye(m + 1)[best], best, truth, "", "", 0.0)
    table = np.column_stack([posterior.marginals, posterior.p_unmatched_rows])
    mode = np.where(posterior.mode < 0, m, posterior.mode)
    words = posterior.diagnostics.verdict, posterior.check(model).verdict, seconds
    yield "permvi", Answer(table, mode, truth, *words)
