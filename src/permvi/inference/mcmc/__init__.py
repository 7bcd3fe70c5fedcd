"""Markov chain Monte Carlo over matchings: swaps, cycles, independence proposals, tempering.

Every kernel leaves the posterior invariant. Together they reach every feasible matching from every
other, under any mask, as long as the density is positive on the way (see `moves`). How long this
takes is not guaranteed; R-hat over chains that start far apart and the effective sample size tell
how well it went (see `summarise_chains`).

For a model with other latent variables, alternate `swap_steps`, which moves the matchings given the
latents, with your own update of the latents given the matchings.
"""

from permvi.inference.mcmc.kernels import swap_steps as swap_steps
from permvi.inference.mcmc.options import MCMCOptions as MCMCOptions
from permvi.inference.mcmc.options import Proposal as Proposal
from permvi.inference.mcmc.result import ChainSummary as ChainSummary
from permvi.inference.mcmc.result import MCMCResult as MCMCResult
from permvi.inference.mcmc.result import summarise_chains as summarise_chains
from permvi.inference.mcmc.run import run_mcmc as run_mcmc
from permvi.inference.mcmc.run import run_mcmc_batch as run_mcmc_batch
