"""Method "auto": exact if that is affordable, else the best approximate method for the model."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from permvi.inference.exact import method as exact
from permvi.inference.linear import method as linear
from permvi.problem.prepare import Prepared

# The cost of a draw of a row-by-row family grows with the cube of the number of rows. Of more rows
# than the second number, and up to the third, tempered chains know more, if they are affordable.
_MAX_SEQUENTIAL, _FEW_ROWS, _MAX_TEMPERED = 64, 24, 128
# An answer takes so many times as many steps as chains that only judge, since the weights of far
# modes are known less well than all else, and so many if it cannot be trusted.
_PRECISE, _LONGER = 3, 12
# Beyond this size, linear tables are not even looked at for small blocks.
_MAX_EXACT = 500


class Choice(NamedTuple):
    """A method and its default options."""

    name: str
    options: Mapping[str, Any]


def choose(prepared: Prepared) -> Choice:
    """Choose the method for a model.

    The first that applies: "linear" if the model lists its candidate pairs; "exact" if it takes
    seconds; the model's own ``auto_method``; "linear" for scores that are linear, if need be given
    one scalar latent; "quadratic" for quadratic forms; "gibbs" for up to 64 items and other
    latents, "rounding" for more; "sequential" up to 24 items; tempered chains of "mcmc" up to 64
    items if the density takes microseconds, else "sequential"; "rounding"; or "mcmc" if the
    density is not known between permutations or items may stay unmatched, up to 128 items by
    tempered chains, too. Raise ``ValueError`` if
    no method supports the model. `permvi.inference._recognise` has looked at functions before.
    """
    if prepared.listed is not None:
        return Choice("linear", {})
    problem = prepared.problem
    is_linear = linear.suits(prepared)
    # Splitting a large table into blocks is slow, and "linear" solves small blocks exactly, too.
    if not (is_linear and max(problem.shape) > _MAX_EXACT) and exact.affordable(prepared):
        return Choice("exact", {})
    suggested = getattr(prepared.model, "auto_method", None)
    if suggested is not None:
        return Choice(*suggested)
    if is_linear:
        return Choice("linear", {})
    # Only now: it loads JAX, which linear models do without.
    from permvi.inference.quadratic import method as quadratic

    if quadratic.suits(prepared):
        return Choice("quadratic", {})
    relaxed = problem.log_density is not None
    if problem.latents:
        if not relaxed:
            raise ValueError(
                "model must be a JAX function of matrices if it has other latents, got one of "
                f"shape {problem.shape} that is not; no method supports it yet."
            )
        from permvi.inference.gibbs import method as gibbs

        return Choice("gibbs" if gibbs.suits(prepared) else "rounding", {})
    rows = problem.num_sites * max(problem.shape)
    if rows <= _FEW_ROWS:
        return Choice("sequential", {})
    few = rows <= _MAX_SEQUENTIAL
    if relaxed and not (few or problem.is_partial):
        return Choice("rounding", {})
    from permvi.inference.mcmc import tempered

    ladder = tempered.ladder(prepared, _MAX_TEMPERED)
    if ladder is not None and ladder.fast:
        return Choice("mcmc", ladder.settings(_PRECISE if few else 1))
    return Choice("sequential" if few else "mcmc", {})


def others(prepared: Prepared, chosen: str) -> Iterator[Choice]:
    """Yield what to try if the answer of the chosen method cannot be trusted.

    That is something for functions of moderate size alone: all else has engines of its own, which
    know when to go on.
    """
    problem = prepared.problem
    rows = problem.num_sites * max(problem.shape)
    if chosen not in ("sequential", "mcmc") or rows > _MAX_SEQUENTIAL:
        return
    from permvi.inference.mcmc import tempered

    ladder = tempered.ladder(prepared)
    if ladder is None:
        return
    if chosen == "sequential":
        yield Choice("mcmc", ladder.settings(_PRECISE))
    if ladder.fast and ladder.may_be_trusted:
        yield Choice("mcmc", ladder.settings(_LONGER))
    if chosen == "mcmc":
        yield Choice("sequential", {})
