"""Fit a model: choose the method, run it, and complete the posterior it returns."""

import dataclasses
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from permvi import _checks, _memory, _programmes
from permvi._cluster import distributed
from permvi._jax import is_loaded
from permvi._threads import single_threaded_blas
from permvi.inference import auto, registry
from permvi.inference._complete import complete
from permvi.inference.interruptible import listening
from permvi.inference.method import Context, Method, Progress, silent
from permvi.inference.verdict.precision import judged_rounding
from permvi.models import CallableModel, LinearMatching, Model
from permvi.models.callables import Input
from permvi.models.labels import is_frame
from permvi.posterior import Posterior, diagnose
from permvi.posterior.marginals import is_large
from permvi.problem.evaluation import log_densities
from permvi.problem.prepare import Prepared, prepare
from permvi.problem.unmatched import LogWeights, tables_by_site

# Models that go to a worker together.
_PACK = 16
# The share of a process's memory maps beyond which compiled programmes are dropped; one fit takes
# up to some thousand of 65,530.
_MOST_MAPS = 0.6


class FitWarning(UserWarning):
    """Warning about a fit whose verdict is not "trust"."""


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
    """Compute the posterior over permutations of a model, or of any log density.

    Every method takes known pairs: they are taken out before the method sees the problem and put
    back afterwards. Masks lose the entries that no matching uses.

    Args:
        model: A model (see `permvi.models.Model`), or a function of one matrix or permutation that
            returns its log density, which needs ``n``, or a DataFrame of scores, whose index and
            columns name items and labels.
        method: A name from `permvi.methods`, or "auto": exact where that is affordable, else the
            best method for this kind of model. Without options, "auto" also finds out whether a
            function is linear or quadratic on matchings.
        seed: The same seed gives the same posterior.
        n: For functions: number of items, or (n, m) with the number of labels.
        input: For functions: their argument, "matrix" (default) or "perm".
        jax: For functions: whether it is a JAX function; by default the function is traced to find
            out.
        progress: Called now and then as ``progress(what, done, total)``.
        **options: Settings of the method, e.g. ``max_size`` of "exact".

    Returns:
        The posterior. If its verdict is not "trust", a `FitWarning` gives the reason.

    Raises:
        ValueError: The method does not exist, or does not take this model.
        TypeError: ``model`` is not a model.
    """
    _checks.one_of("method", method, registry.NAMES)
    began = time.perf_counter()
    prepared = prepare(as_model(model, n=n, input=input, jax=jax))
    posterior = _fit_form(prepared, method, seed, options, progress)
    if posterior is None:
        posterior = _fit_one(prepared, method, seed, options, progress)
    posterior = dataclasses.replace(posterior, seconds=time.perf_counter() - began)
    _warn([posterior])
    return posterior


def fit_many(
    models: Iterable[Model],
    method: str = "auto",
    seed: int = 0,
    *,
    progress: Progress | None = None,
    client: Any = None,
    **options: Any,
) -> list[Posterior]:
    """Compute the posteriors of many models; those of one shape are fitted in one vmapped call.

    Args:
        models: The models.
        method: See `fit`, and likewise for the rest. "auto" chooses for each model.
        seed: The same seed gives the same posteriors.
        progress: Called now and then.
        client: A Dask client, whose workers fit the models in packs of a fixed size, so that the
            result does not depend on how many workers there are or whether one of them dies.
        **options: Settings of the method.

    Returns:
        One posterior for each model, in order. Models fitted together share ``seconds`` equally.
    """
    _checks.one_of("method", method, registry.NAMES)
    if client is not None:
        in_order = _fit_on_cluster(list(models), method, seed, progress or silent, client, options)
        _warn(in_order)
        return in_order
    batch = [prepare(as_model(model)) for model in models]
    posteriors: dict[int, Posterior] = {}
    for k, prepared in enumerate(batch):
        by_form = _fit_form(prepared, method, seed, options, progress)
        if by_form is not None:
            posteriors[k] = by_form
    chosen = [
        _choose(prepared, method, _checks.seed(seed), options, progress) for prepared in batch
    ]
    batch = [suited(prepared, engine) for prepared, (engine, _) in zip(batch, chosen, strict=True)]
    if any(prepared.is_centred for prepared in batch):
        # All of them or none, since only problems that are alike can be solved together.
        batch = [
            suited(prepared, engine, even_if_near=True)
            for prepared, (engine, _) in zip(batch, chosen, strict=True)
        ]
    groups: dict[tuple[int, str], list[int]] = {}
    for k, (engine, context) in enumerate(chosen):
        # The user's options are the same for all models; what "auto" adds to them may differ.
        added = {name: value for name, value in context.options.items() if name not in options}
        if k not in posteriors:
            groups.setdefault((id(engine), repr(added)), []).append(k)
    for indices in groups.values():
        engine, context = chosen[indices[0]]
        began = time.perf_counter()
        together = _run_together(engine, [batch[k] for k in indices], context)
        share = (time.perf_counter() - began) / len(indices)
        for place, k in enumerate(indices):
            if together is not None:
                posteriors[k] = complete(together[place], batch[k], context, method, share)
                continue
            began = time.perf_counter()
            found = _run(engine, batch[k], context._replace(progress=silent))
            seconds = time.perf_counter() - began
            posteriors[k] = complete(found, batch[k], context, method, seconds)
            if method == registry.AUTO and not options:
                posteriors[k] = _better(batch[k], posteriors[k], progress)
            context.progress(context.method, place + 1, len(indices))
    in_order = [posteriors[k] for k in range(len(batch))]
    _warn(in_order)
    return in_order


def _fit_on_cluster(
    models: list[Model],
    method: str,
    seed: int,
    progress: Progress,
    client: Any,
    options: Mapping[str, Any],
) -> list[Posterior]:
    """Fit packs of models on the workers of a Dask client; return posteriors in order."""
    packs = [models[k : k + _PACK] for k in range(0, len(models), _PACK)]
    futures = {
        client.submit(_fit_pack, pack, method, seed, dict(options), pure=False, retries=3): k
        for k, pack in enumerate(packs)
    }
    found: dict[int, list[Posterior]] = {}
    for future, posteriors in distributed().as_completed(
        futures, loop=client.loop, with_results=True
    ):
        found[futures[future]] = posteriors
        progress("fitting", sum(map(len, found.values())), len(models))
    return [posterior for k in range(len(packs)) for posterior in found[k]]


def _fit_pack(
    models: list[Model], method: str, seed: int, options: dict[str, Any]
) -> list[Posterior]:
    """Fit models on a worker; the caller warns about all of them at once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        return fit_many(models, method, seed, **options)


def _fit_one(
    prepared: Prepared,
    method: str,
    seed: int,
    options: Mapping[str, Any],
    progress: Progress | None,
) -> Posterior:
    """Fit one model; "auto" tries other methods if an answer cannot be trusted."""
    began = time.perf_counter()
    chosen, context = _choose(prepared, method, _checks.seed(seed), options, progress)
    model, prepared = prepared, suited(prepared, chosen)
    found = _run(chosen, prepared, context)
    posterior = complete(found, prepared, context, method, time.perf_counter() - began)
    if method == registry.AUTO and not options:
        return _better(model, posterior, progress)
    return posterior


def _better(prepared: Prepared, posterior: Posterior, progress: Progress | None) -> Posterior:
    """Return a posterior that "auto" has found, or that of another method if it has more trust."""
    if posterior.diagnostics.verdict == "trust":
        # Looking for others evaluates the density.
        return posterior
    best, ranks = posterior, ("trust", "check", "do not trust")
    for name, options in auto.others(prepared, posterior.method):
        found = best.diagnostics
        if found.verdict == "trust" or found.reasons[0].startswith("interrupted"):
            break
        began = time.perf_counter()
        chosen = registry.method(name, prepared.model)
        context = Context(chosen.info.name, posterior.seed or 0, options, progress or silent)
        other = _run(chosen, prepared, context)
        other = complete(other, prepared, context, registry.AUTO, time.perf_counter() - began)
        if ranks.index(other.diagnostics.verdict) < ranks.index(found.verdict):
            note = f"method {best.method!r} was tried first: {found.verdict}"
            reasons = (*other.diagnostics.reasons, note)
            diagnostics = dataclasses.replace(other.diagnostics, reasons=reasons)
            best = dataclasses.replace(other, diagnostics=diagnostics)
    return best


def _fit_form(
    prepared: Prepared,
    method: str,
    seed: int,
    options: Mapping[str, Any],
    progress: Progress | None,
) -> Posterior | None:
    """Fit a function that is linear or quadratic as such; None if it is not, or not for "auto"."""
    if method != registry.AUTO or options or not isinstance(prepared.model, CallableModel):
        return None
    # Only now: it loads JAX, which linear models do without.
    from permvi.inference._recognise import recognise

    found = recognise(prepared)
    if found is None:
        return None
    return found.confirmed(_fit_one(prepare(found.model), method, seed, options, progress))


def _choose(
    prepared: Prepared,
    method: str,
    seed: int,
    options: Mapping[str, Any],
    progress: Progress | None,
) -> tuple[Method, Context]:
    """Return the method for a model, and how to run it."""
    name = method
    if method == registry.AUTO:
        name, suggested = auto.choose(prepared)
        options = {**suggested, **options}
    chosen = registry.method(name, prepared.model)
    registry.check_options(chosen, options, prepared.model)
    return chosen, Context(chosen.info.name, seed, options, progress or silent)


def suited(prepared: Prepared, chosen: Method, *, even_if_near: bool = False) -> Prepared:
    """Return a model as the method takes it.

    A method that takes no lists of pairs gets tables, and one that computes in JAX gets linear
    models without the constants that float32 would round; ``even_if_near`` also without others.
    """
    if prepared.listed is not None:
        keep = chosen.lists or is_large(prepared.model.shape)
    else:
        keep = prepared.problem.scores is None or not chosen.rounds
    if keep:
        return prepared
    return prepare(prepared.model, lists=False, centred="always" if even_if_near else "far")


def _run(chosen: Method, prepared: Prepared, context: Context) -> Posterior:
    """Run a method on one model, unless known pairs leave nothing to infer."""
    if prepared.settled and not prepared.problem.latents:
        only = np.asarray(prepared.model.known)[None]
        evidence = _evidence_of(prepared, only)
        if evidence == -np.inf:
            raise ValueError(
                "known and unmatched weights must leave a feasible matching, got none."
            )
        return Posterior.from_draws(
            only,
            shape=prepared.model.shape,
            log_evidence=evidence,
            log_evidence_kind="exact",
            diagnostics=diagnose(exact=True),
            num_evaluations=1,
        )
    chosen.check(prepared)
    chosen.check_memory(prepared)
    if not chosen.rounds:
        return chosen.run(prepared, context)
    _forget_programmes()
    with single_threaded_blas():
        if not prepared.problem.traceable:
            return chosen.run(prepared, context)
        found = listening(lambda: chosen.run(prepared, context))
        return judged_rounding(prepared, found)


def _forget_programmes() -> None:
    """Drop what JAX has compiled before a process has no memory maps left, which would end it.

    A programme takes between three maps and some hundred. Fits of fifty different structures, e.g.
    masks, may need all 65,530 of them.
    """
    if is_loaded() and _memory.maps_used() > _MOST_MAPS:
        _programmes.forget()


def _evidence_of(prepared: Prepared, only: np.ndarray) -> float:
    """Return the log density of the only matching, (1, n) or (1, S, n), with unmatched weights."""
    if prepared.listed is not None:
        return float(prepared.problem.constant)
    if prepared.linear is None:
        return float(log_densities(prepared.problem, only)[0])
    tables = tables_by_site(prepared.linear.arguments(), prepared.model.num_sites)
    sites = only.reshape(len(tables), -1)
    return sum(float(LogWeights(t).of(perm)) for t, perm in zip(tables, sites, strict=True))


def _run_together(
    chosen: Method, batch: Sequence[Prepared], context: Context
) -> list[Posterior] | None:
    """Run a method on several models in one call, if it can."""
    if chosen.run_many is None or any(prepared.settled for prepared in batch):
        return None
    for prepared in batch:
        chosen.check(prepared)
    # Models of different shapes are fitted one by one.
    if len({prepared.model.shape for prepared in batch}) == 1:
        chosen.check_memory(batch[0], len(batch))
    together = chosen.run_many
    _forget_programmes()
    with single_threaded_blas():
        found = listening(lambda: together(batch, context))
    if found is None or not chosen.rounds:
        return found
    return [judged_rounding(*pair) for pair in zip(batch, found, strict=True)]


def as_model(model: Any, **of_function: Any) -> Any:
    """Return the model itself, or make one of a function (with ``n``, ``input`` and ``jax``)."""
    if is_frame(model):
        return LinearMatching(model)
    if isinstance(model, type):
        raise TypeError(f"model must be an instance, got the class {model.__name__}.")
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


def _warn(posteriors: Sequence[Posterior]) -> None:
    """Warn the caller's caller once about all fits whose verdict is not "trust"."""
    doubtful = [p for p in posteriors if p.diagnostics.verdict != "trust"]
    if not doubtful:
        return
    worst = doubtful[0].diagnostics
    if len(posteriors) == 1:
        message = f"verdict {worst.verdict!r}: {worst.reasons[0]}."
    else:
        message = (
            f"{len(doubtful)} of {len(posteriors)} fits have a verdict other than 'trust'; the "
            f"first reason: {worst.reasons[0]}."
        )
    warnings.warn(message, FitWarning, stacklevel=3)
