"""Options of the methods that the worms of the paper are identified with, but for defaults."""

from typing import Any

ROUNDING_ONE: dict[str, Any] = {"temperature": 1.0}
"""The paper's family; nothing is rounded before the end."""

ROUNDING: dict[str, Any] = {"temperature": 0.5}
"""The same with an assignment in every step, and a temperature that falls from 1."""

MCMC: dict[str, Any] = {
    "num_chains": 4,
    "num_steps": 400,
    "swaps_per_proposal": 10,
    "num_draws": 1000,
}

MAP: dict[str, Any] = {"num_restarts": 2}
