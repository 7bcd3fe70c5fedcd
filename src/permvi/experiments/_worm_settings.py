"""Options of the methods that the worms of the paper are identified with."""

from typing import Any

ROUNDING_ONE: dict[str, Any] = {
    "temperature": 1.0,
    "optimiser": "mirror",
    "learning_rate": 0.1,
    "learning_rate_end": 0.001,
    "learning_rate_schedule": "cosine",
    "latent_rate": 3.0,
    "scale_bounds": (0.001, 0.01),
    "prior_width": 0.5,
    "start_spread": 0.0,
    "num_steps": 400,
    "num_samples": 1,
    "num_restarts": 1,
    "num_draws": 100,
}
"""The paper's family; nothing is rounded before the end."""

ROUNDING: dict[str, Any] = {
    **ROUNDING_ONE,
    "temperature": 0.5,
    "temperature_start": 1.0,
    "temperature_schedule": "exponential",
    "anneal_fraction": 1.0,
}
"""The same with an assignment in every step, and a temperature that falls."""

NAIVE: dict[str, Any] = {
    "num_steps": 200,
    "num_samples": 1,
    "num_restarts": 1,
    "num_draws": 100,
}

MCMC: dict[str, Any] = {
    "num_chains": 4,
    "num_steps": 400,
    "swaps_per_proposal": 10,
    "num_draws": 1000,
}

MAP: dict[str, Any] = {"num_restarts": 2}
