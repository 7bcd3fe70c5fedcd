"""Tracks of particles: the points of all frames linked together, with probabilities.

`rates` and `chain` have the model, `candidates` the links worth looking at and the best
association, `velocity` the particles that go on in their direction, `kernels` the moves.
"""

from permvi.inference.tracks.run import track as track
from permvi.posterior.tracks import Track as Track
from permvi.posterior.tracks import TrackPosterior as TrackPosterior
