"""The posterior over orders of any model of rankings, by its name."""

import dataclasses
from typing import Any

import numpy as np

from permvi.inference.rankings import chains, exact, exchanges, families, worths
from permvi.inference.rankings.consensus import contradicted, descend, kemeny
from permvi.inference.rankings.exact import Solved
from permvi.inference.rankings.families import Family
from permvi.inference.rankings.worths import Worths
from permvi.models.rankings import Ballots
from permvi.posterior import Diagnostics, Latent, Posterior, diagnose

PLACKETT_LUCE, DAVIDSON = "plackett_luce", "davidson"
# Models with a worth for each item.
_OF_WORTHS = (PLACKETT_LUCE, DAVIDSON)
MODELS = (*families.FAMILIES, *_OF_WORTHS)


@dataclasses.dataclass(frozen=True, eq=False)
class Answer:
    """The posterior of one model.

    Attributes:
        name: The name of the model.
        ballots: What it was fitted to.
        solved: Probabilities of ranks and pairs, the mode, the evidence and the parameters.
        evidence_se: The standard error of the log evidence, 0 where it is exact.
        diagnostics: How far the computation can be trusted.
        method: "exact", "mcmc" or "importance".
        family: The Mallows family; None for worths.
        worths: The posterior of the worths; None for Mallows families.
    """

    name: str
    ballots: Ballots
    solved: Solved
    evidence_se: float
    diagnostics: Diagnostics
    method: str
    family: Family | None = None
    worths: Worths | None = None

    def posterior(self, **fields: Any) -> Posterior:
        """Return the answer as a posterior, with further fields."""
        solved = self.solved
        is_exact = self.method == "exact"
        moments = solved.thetas[0] if len(solved.thetas) == 1 else solved.thetas.T
        name = "sigma" if self.worths is not None else "theta"
        latents = {name: Latent(np.asarray(moments[0]), np.asarray(moments[1]))}
        if self.worths is not None:
            latents["log_worth"] = Latent(self.worths.mean, self.worths.sd)
            if self.worths.log_tie is not None:
                latents["log_tie"] = Latent(*map(np.asarray, self.worths.log_tie))
        known = {
            "log_evidence": solved.log_evidence,
            "log_evidence_kind": "exact" if is_exact else "estimate",
            "log_evidence_se": None if is_exact else self.evidence_se,
            "latents": latents,
            "diagnostics": self.diagnostics,
            "method": self.method,
        }
        return Posterior(
            law=solved.law, marginals=solved.marginals, mode=solved.mode, **{**known, **fields}
        )

    def modal_ranks(self, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(n,) ranks of the most probable order if the ballots had other counts.

        Parameters stay as they are. Among equally good orders the choice is random.
        """
        if self.worths is not None:
            return worths.modal_ranks(self.ballots, counts, self.worths)
        again = dataclasses.replace(self.ballots, counts=counts)
        if self.family is not None and self.family.ballots is not None:
            if self.family.num_items > families.MAX_LISTED:
                mode = self.solved.mode
                return exchanges.nearest(self.family.ballots, counts, rng, mode)
            energies = self.family.listed @ counts
            best = np.flatnonzero(energies == energies.min())
            return families.list_ranks(len(again.items))[rng.choice(best)]
        family = families.FAMILIES[self.name](again)
        noise = 1e-6 * rng.random(family.places.shape)
        if family.places.any():
            from scipy.optimize import linear_sum_assignment

            return linear_sum_assignment(family.places + noise)[1]
        thetas = self.solved.thetas[: len(family.pairs), 0]
        thetas = thetas / thetas.max()
        pairs = np.einsum("j,jab->ab", thetas, family.pairs[: len(thetas)]) + noise
        return np.argsort(_best_order(pairs, np.argsort(self.solved.mode)))


def answer(
    name: str,
    ballots: Ballots,
    seed: int,
    method: str = "auto",
    *,
    num_sweeps: int | None = None,
    num_draws: int | None = None,
) -> Answer:
    """Compute the posterior of a model.

    Args:
        name: One of `MODELS`.
        ballots: The ballots.
        seed: Seed of draws and chains.
        method: "exact" or "mcmc" for Mallows families; by default exact where that takes seconds.
        num_sweeps: Sweeps of each chain over all items.
        num_draws: Draws of worths.

    Raises:
        ValueError: The model does not take such ballots, or they are too many items for a method.
    """
    if name in _OF_WORTHS:
        _refuse("num_sweeps", num_sweeps, f"which the model {name!r} does not use")
        found = worths.solve(ballots, seed, ties=name == DAVIDSON, num_draws=num_draws)
        checked = diagnose(
            sampling_error_by_row=_sampling_error(found.solved.marginals, found.effective),
            disagreement_by_row=np.abs(found.halves[0] - found.halves[1]).sum(axis=1) / 2,
            row_labels=ballots.items,
            advice="take more draws (num_draws)",
        )
        return Answer(
            name,
            ballots,
            found.solved,
            found.evidence_se,
            _of_ranks(checked, "num_draws"),
            "importance",
            worths=found,
        )
    _refuse("num_draws", num_draws, f"which the model {name!r} does not use")
    family = families.FAMILIES[name](ballots)
    affordable = exact.is_affordable(family)
    if method == "exact" and not affordable:
        raise ValueError(
            f"method 'exact' takes fewer items for the model {name!r}, got {family.num_items}."
        )
    if affordable and method != "mcmc":
        _refuse("num_sweeps", num_sweeps, "which an exact answer does not use; use method='mcmc'")
        found_exactly = exact.solve(family, seed)
        return Answer(
            name, ballots, found_exactly, 0.0, diagnose(exact=True), "exact", family=family
        )
    sample = chains.sample if family.ballots is None else exchanges.sample
    sampled = sample(family, _start(family), seed, num_sweeps)
    from_best, from_others = sampled.by_chain[::2].mean(axis=0), sampled.by_chain[1::2].mean(axis=0)
    checked = diagnose(
        sampling_error_by_row=_sampling_error(sampled.solved.marginals, sampled.effective),
        disagreement_by_row=np.abs(from_best - from_others).sum(axis=1) / 2,
        row_labels=ballots.items,
        advice="take more sweeps (num_sweeps)",
    )
    return Answer(
        name,
        ballots,
        sampled.solved,
        sampled.evidence_se,
        _of_ranks(checked, "num_sweeps"),
        "mcmc",
        family=family,
    )


def _refuse(name: str, value: int | None, why: str) -> None:
    if value is not None:
        raise ValueError(f"{name} must be left out, {why}, got {value}.")


def _of_ranks(found: Diagnostics, setting: str) -> Diagnostics:
    """Say "rank" in the reasons, since the labels are ranks, and the setting that there is."""
    more = f"take more {setting.removeprefix('num_')} ({setting})"
    reasons = tuple(
        reason.replace("label", "rank").replace("take more draws or a richer family", more)
        for reason in found.reasons
    )
    return dataclasses.replace(found, reasons=reasons)


def log_evidence(name: str, ballots: Ballots, seed: int) -> tuple[float, float]:
    """The log evidence of a model and its standard error, without the rest where that is faster."""
    if name not in _OF_WORTHS:
        family = families.FAMILIES[name](ballots)
        if exact.is_affordable(family):
            return exact.log_evidence(family), 0.0
    found = answer(name, ballots, seed)
    return found.solved.log_evidence, found.evidence_se


def _start(family: Family) -> np.ndarray:
    """(n,) ranks of the best order known: the Kemeny order for Kendall's distance."""
    if family.ballots is not None and family.counts is not None:
        return exchanges.nearest(family.ballots, family.counts, np.random.default_rng(0))
    if family.places.any():
        return chains.best_known(family)
    return kemeny(family.pairs.sum(axis=0), max_seconds=10.0).ranks


def _best_order(pairs: np.ndarray, start: np.ndarray) -> np.ndarray:
    """An order of least cost: surely for few items, by descents for many."""
    if len(pairs) <= 12:
        return kemeny(pairs).order
    by_wins = np.argsort((pairs - pairs.T).sum(axis=1), kind="stable")
    orders = [descend(pairs, order) for order in (start, by_wins)]
    values = contradicted(np.argsort(orders, axis=1), pairs)
    return orders[int(np.argmin(values))]


def _sampling_error(marginals: np.ndarray, effective: float) -> np.ndarray:
    """(n,) expected total variation of each row due to a finite number of draws."""
    spread = np.sqrt(np.clip(marginals * (1 - marginals), 0, None) / effective)
    return 0.5 * np.sqrt(2 / np.pi) * spread.sum(axis=1)
