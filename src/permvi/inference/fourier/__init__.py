"""Distributions over permutations as Fourier coefficients on the symmetric group."""

from permvi.inference.fourier.filter import IdentityFilter as IdentityFilter
from permvi.inference.fourier.method import ScoresFit as ScoresFit
from permvi.inference.fourier.method import filter_scores as filter_scores
from permvi.inference.fourier.transform import Projection as Projection
from permvi.inference.fourier.transform import convolve as convolve
from permvi.inference.fourier.transform import from_marginals as from_marginals
from permvi.inference.fourier.transform import inverse_transform as inverse_transform
from permvi.inference.fourier.transform import multiply as multiply
from permvi.inference.fourier.transform import project as project
from permvi.inference.fourier.transform import to_marginals as to_marginals
from permvi.inference.fourier.transform import transform as transform
from permvi.inference.fourier.transform import tuples as tuples
from permvi.inference.fourier.young import Irrep as Irrep
from permvi.inference.fourier.young import irrep as irrep
from permvi.inference.fourier.young import partitions as partitions
