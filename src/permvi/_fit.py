"""The front door: a model in, a posterior out."""

import dataclasses
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from permvi._methods import auto
from permvi._methods import registry as methods
from permvi._methods.context import Context, Progress, silent
from permvi._methods.settled import settled
from permvi._task import Task, prepare
from permvi.models import CallableModel, Model, fingerprint
from permvi.models.callables import Input
from permvi.models.protocol import optional
from permvi.posterior import Latent, Posterior

# Draws of permutations behind the moments of latents that a model has integrated out.
_NUM_DRAWS = 4000


class FitWarning(UserWarning):
    """A fit that should not be believed without a look at its diagnostics."""


def fit(
    model: Model | Callable[[Any], Any],
    method: str = "auto",
    seed: int = 0,
    *,
    n: int | tuple[int, int] | None = None,
    input: Input | None = None,
    jax: bool | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Posterior:
    """The posterior over permutations of a model, or of any log density.

    Known pairs are taken out before the method sees the problem and put back afterwards, and masks
    lose the entries that no matching uses. So every method takes known pairs.

    Args:
        model: A model (see `permvi.models.Model`), or a function of one matrix or permutation that
            returns its log density; then ``n`` is needed.
        method: A name from `permvi.methods`, or "auto": exact where that is affordable, else the
            best general method there is.
        seed: The same seed gives the same posterior.
        n: For functions: the number of items, or (n, m) with the number of labels.
        input: For functions: what it takes, "matrix" (default) or "perm".
        jax: For functions: whether it is a JAX function; by default that is found out.
        progress: Called as ``progress(what, done, total)`` now and then.
        **options: Settings of the method, e.g. ``max_size`` of "exact".

    Returns:
        The posterior. A `FitWarning` says if its verdict is not "trust", and why.

    Raises:
        ValueError: The method does not exist, or cannot treat this model.
        TypeError: ``model`` is none.
    """
    methods.check_method(method)
    start = time.perf_counter()
    task = prepare(as_model(model, n=n, input=input, jax=jax))
    name, context = _context(task, method, _seed(seed), options, progress)
    found = settled(task) or methods.engine(name).run(task, context)
    posterior = _complete(found, task, context, method, time.perf_counter() - start)
    _warn([posterior])
    return posterior


def fit_many(
    models: Iterable[Model],
    method: str = "auto",
    seed: int = 0,
    *,
    progress: Progress | None = None,
    **options: Any,
) -> list[Posterior]:
    """The posteriors of many models; those of one shape are fitted in one vmapped call.

    Args:
        models: As for `fit`.
        method: As for `fit`. "auto" chooses once, by the first model.
        seed: As for `fit`.
        progress: As for `fit`.
        **options: As for `fit`.

    Returns:
        One posterior for each model, in their order. Where they were fitted together, ``seconds``
        is an equal share.
    """
    methods.check_method(method)
    tasks = [prepare(as_model(model)) for model in models]
    if not tasks:
        return []
    start = time.perf_counter()
    name, context = _context(tasks[0], method, _seed(seed), options, progress)
    engine = methods.engine(name)
    together = None
    if hasattr(engine, "run_many") and not any(task.settled for task in tasks):
        together = engine.run_many(tasks, context)
    if together is None:
        posteriors = []
        for index, task in enumerate(tasks):
            began = time.perf_counter()
            found = settled(task) or engine.run(task, context._replace(progress=silent))
            seconds = time.perf_counter() - began
            posteriors.append(_complete(found, task, context, method, seconds))
            context.progress(name, index + 1, len(tasks))
    else:
        share = (time.perf_counter() - start) / len(tasks)
        posteriors = [
            _complete(found, task, context, method, share)
            for found, task in zip(together, tasks, strict=True)
        ]
    _warn(posteriors)
    return posteriors


def _context(
    task: Task, method: str, seed: int, options: Mapping[str, Any], progress: Progress | None
) -> tuple[str, Context]:
    name = method
    if method == methods.AUTO:
        name = auto.choose(task)
        options = {**auto.options_of(task, name), **options}
    methods.check_options(name, options)
    return name, Context(name, seed, options, progress or silent)


def as_model(model: Any, **of_function: Any) -> Any:
    """The model itself, or that of a function (with ``n``, ``input`` and ``jax``)."""
    if isinstance(model, Model):
        given = [name for name, value in of_function.items() if value is not None]
        if given:
            raise TypeError(f"{given[0]} is for functions, got it with a {type(model).__name__}.")
        return model
    if not callable(model):
        raise TypeError(
            "model must have shape, num_sites and log_density, or be a function, got "
            f"{type(model).__name__}; models.LinearMatching takes a matrix of scores."
        )
    if of_function.get("n") is None:
        raise ValueError("n must be given with a function, e.g. fit(f, n=6), got None.")
    kind: Input = of_function["input"] or "matrix"
    return CallableModel(model, of_function["n"], kind, jax=of_function["jax"])


def _seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise TypeError(f"seed must be an integer, got {seed!r:.60}.")
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must be between 0 and 2**32 - 1, got {seed}.")
    return int(seed)


def _complete(
    posterior: Posterior, task: Task, context: Context, requested: str, seconds: float
) -> Posterior:
    """The posterior with all that does not depend on the method."""
    evidence = posterior.log_evidence
    if evidence is not None:
        evidence += optional(task.model, "log_constant") or 0.0
    return dataclasses.replace(
        posterior,
        log_evidence=evidence,
        latents={**posterior.latents, **_integrated(posterior, task, context.seed)},
        labels=task.labels,
        method=context.method,
        settings={"requested": requested, **_plain(context.options)},
        seed=context.seed,
        fingerprint=fingerprint(task.model),
        seconds=seconds,
    )


def _integrated(posterior: Posterior, task: Task, seed: int) -> dict[str, Latent]:
    """The latents that the model has integrated out, from draws of the posterior."""
    moments = optional(task.model, "integrated_latents")
    if moments is None:
        return {}
    draws = posterior.sample(_NUM_DRAWS, seed)
    return {name: Latent(np.array(m), np.array(sd)) for name, (m, sd) in moments(draws).items()}


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as a posterior stores them: what JSON knows as it is, the rest as text."""
    plain = (str, int, float, bool, type(None), list, tuple, dict, np.ndarray, np.generic)
    return {
        name: value if isinstance(value, plain) else repr(value) for name, value in options.items()
    }


def _warn(posteriors: Sequence[Posterior]) -> None:
    """One warning for all that is not to be trusted, in the name of the caller of the caller."""
    doubtful = [p for p in posteriors if p.diagnostics.verdict != "trust"]
    if not doubtful:
        return
    worst = doubtful[0].diagnostics
    if len(posteriors) == 1:
        message = f"verdict {worst.verdict!r}: {worst.reasons[0]}."
    else:
        message = (
            f"{len(doubtful)} of {len(posteriors)} fits are not to be trusted as they are; of the "
            f"first of them: {worst.reasons[0]}."
        )
    warnings.warn(message, FitWarning, stacklevel=3)
