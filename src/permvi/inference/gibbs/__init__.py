"""Markov chains for NumPyro models with permutations among their latent variables."""

from permvi.inference.gibbs.kernel import PermutationGibbs as PermutationGibbs
from permvi.inference.gibbs.result import SiteSummary as SiteSummary
