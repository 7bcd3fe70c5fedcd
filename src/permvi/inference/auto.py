"""Method "auto": exact where that is affordable, else the best general method there is."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from permvi.inference.exact import method as exact
from permvi.inference.sparse import method as sparse
from permvi.problem.prepare import Prepared

# The cost of a draw of a row-by-row family grows with the cube of the number of rows.
_MAX_SEQUENTIAL = 64
# Beyond this, even asking whether a table splits into affordable blocks takes its time.
_MAX_EXACT = 500


class Choice(NamedTuple):
    """A method, and the options that it should have unless the user gives others."""

    name: str
    options: Mapping[str, Any]


def choose(prepared: Prepared) -> Choice:
    """Choose the method for a model.

    Exact where that takes seconds. Beyond that the method that the model suggests (its
    ``auto_method``), if it suggests one; families with exact probabilities up to 64 items; the
    sparse method where most pairs are forbidden (it is exact in small blocks, too); relaxed
    families; or chains where the density is not known between permutations or items may stay
    unmatched. Other latents take a relaxed family.

    Raises:
        ValueError: There is none.
    """
    problem = prepared.problem
    few_candidates = sparse.suits(prepared)
    if few_candidates and max(problem.shape) > _MAX_EXACT:
        return Choice("sparse", {})
    if exact.affordable(prepared):
        return Choice("exact", {})
    suggested = getattr(prepared.model, "auto_method", None)
    if suggested is not None:
        return Choice(*suggested)
    if few_candidates:
        return Choice("sparse", {})
    relaxed = problem.log_density is not None
    if problem.latents:
        if not relaxed:
            raise ValueError(
                "model must be a JAX function of matrices if it has other latents, got one of "
                f"shape {problem.shape} that is not; no method takes it yet."
            )
        return Choice("rounding", {})
    if problem.num_sites * max(problem.shape) <= _MAX_SEQUENTIAL:
        return Choice("sequential", {})
    return Choice("rounding" if relaxed and not problem.is_partial else "mcmc", {})
