r"""Find frames of reference: many starts, of which EM improves those that fit best.

The E step scales the weights of pairs to sums of at most one (Sinkhorn's steps, with weights of
staying alone), which gives probabilities of pairs and an upper bound on the evidence of all
matchings. The M step is one Gauss-Newton step of the frame. Labels scatter more widely at first, so
that they attract cells from afar.
"""

from typing import NamedTuple

import numpy as np

from permvi.models.atlas.frames import FrameModel, Frames, start_rotations
from permvi.models.atlas.widths import Weighed, scaled

# Turns about the long axis; the widths of the scatter and the number of frames kept after each.
NUM_ANGLES = 12
_SCHEDULE = ((4.0, 36), (3.0, 36), (2.5, 24), (2.0, 24), (1.6, 16), (1.3, 16), (1.0, 12), (1.0, 12))
_LATER_STEPS = 25
_LATER_KEPT = 4
_CONVERGED = 1e-3
# Two frames are the same if they place cells as close as this, in units of the atlas' spread.
_SAME = 0.05


class Found(NamedTuple):
    """Distinct frames, best first, and their log evidence, a bound for each."""

    frames: Frames
    log_evidence: np.ndarray


def find_frames(model: FrameModel, extra: np.ndarray, extra_alone: np.ndarray) -> Found:
    """Return the best frames from all starts.

    Args:
        model: The frames of one animal.
        extra: (n, m) log weights that are added to those of pairs, -inf where one is impossible.
        extra_alone: (n,) likewise for unmatched cells.
    """
    frames = model.starts(start_rotations(model, NUM_ANGLES))

    def weigh(width: float) -> tuple[np.ndarray, Weighed, np.ndarray]:
        y = model.apply(frames)
        pairs, alone = model.tables(y, width)
        found = scaled(pairs + extra, alone + extra_alone)
        total = found.log_evidence + model.log_volume(frames) + model.log_prior(frames)
        return y, found, total

    later = [(1.0, _LATER_KEPT)] * _LATER_STEPS
    before = np.array([-np.inf])
    for width, kept in (*_SCHEDULE, *later):
        y, found, total = weigh(width)
        order = np.argsort(-total, kind="stable")[:kept]
        frames, total = frames.take(order), total[order]
        probabilities = found.pairs[order], found.alone[order]
        step, _ = model.step(frames, model.pull(y[order], *probabilities, width))
        frames = model.moved(frames, np.clip(step, -0.5, 0.5))
        same = kept == _LATER_KEPT and len(before) == len(total)
        if same and np.abs(total - before).max() < _CONVERGED:
            break
        before = total
    _, _, total = weigh(1.0)
    return _distinct(model, frames, total)


def _distinct(model: FrameModel, frames: Frames, total: np.ndarray) -> Found:
    """Return frames that differ from each better one."""
    places = model.apply(frames)[..., : model.q]
    kept: list[int] = []
    for k in np.argsort(-total, kind="stable").tolist():
        apart = [np.sqrt(((places[k] - places[j]) ** 2).sum(axis=-1).mean()) for j in kept]
        if all(distance > _SAME for distance in apart):
            kept.append(k)
    return Found(frames.take(np.array(kept)), total[kept])
