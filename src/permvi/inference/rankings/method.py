"""Methods "exact" and "mcmc" for `permvi.models.Rankings`, instead of the general ones."""

import dataclasses

from permvi.inference.exact import method as general_exact
from permvi.inference.mcmc import method as general_mcmc
from permvi.inference.method import Context, Method
from permvi.inference.rankings.solve import answer
from permvi.posterior import Posterior
from permvi.problem.prepare import Prepared


def _run(prepared: Prepared, context: Context) -> Posterior:
    model = prepared.model
    found = answer("mallows", model.ballots, context.seed, context.method)
    # The constant of the model is added to the evidence of every method.
    evidence = found.solved.log_evidence - model.log_constant
    return found.posterior(log_evidence=evidence)


METHODS = {
    "exact": Method(general_exact.METHODS["exact"].info, (), _run, square=True, rounds=False),
    "mcmc": Method(
        dataclasses.replace(
            general_mcmc.METHODS["mcmc"].info,
            gives="draws by insertions of single items, and an estimate of the evidence",
        ),
        (),
        _run,
        square=True,
        rounds=False,
    ),
}
