"""Markov chain Monte Carlo over matchings: swaps, cycles, independence proposals, tempering.

What is guaranteed: every kernel leaves the posterior invariant, and together they reach every
matching that the constraints allow from every other, under any mask, as long as the density is
positive on the way; see `moves`. What is not: that they do so soon. R-hat over chains that start
far apart, and the effective sample size, tell how it went; see `summary`.

A model with other latent variables needs steps for those, too: `swap_steps` moves the matchings
given the latents, in turn with the user's own update of the latents given the matchings.
"""

from permvi.inference.mcmc.gibbs import swap_steps as swap_steps
from permvi.inference.mcmc.options import MCMCOptions as MCMCOptions
from permvi.inference.mcmc.options import Proposal as Proposal
from permvi.inference.mcmc.result import ChainSummary as ChainSummary
from permvi.inference.mcmc.result import MCMCResult as MCMCResult
from permvi.inference.mcmc.result import summarise_chains as summarise_chains
from permvi.inference.mcmc.run import run_mcmc as run_mcmc
from permvi.inference.mcmc.run import run_mcmc_batch as run_mcmc_batch
