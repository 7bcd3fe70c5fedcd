"""What holds for every posterior, whatever the model and the method."""

import warnings

import numpy as np

import permvi as pv

HOST = ("auto", "exact", "linear", "map", "sinkhorn", "bethe", "convex")
COMPILED = {
    "sequential": {"num_steps": 100},
    "stick_breaking_discrete": {"num_steps": 100},
    "mcmc": {"num_steps": 2000},
    "importance": {},
    "perturb_and_map": {},
    "quadratic": {},
    "naive": {},
    "vmf": {},
    "fourier": {},
    "mallows": {},
    "plackett_luce": {},
    "rounding": {"num_steps": 60},
    "stick_breaking": {"num_steps": 60},
    "gumbel_sinkhorn": {},
}
# The word of a verdict: "trust" means that rows are closer to the truth than this.
TRUSTED = 0.1
# What float64 may do to log weights, in nats, before enumeration itself is no answer.
PRECISE = 1e-3
# How many fits were tried, which `make fuzz` prints.
tried = {"fits": 0}


def fitted(make, method, seed=0, **options):
    """Return the posterior, or None if the method refuses the problem in one sentence."""
    tried["fits"] += 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pv.FitWarning)
            return pv.fit(make(), method, seed, **options)
    except (ValueError, TypeError) as error:
        message = str(error)
        assert message.rstrip(".?")
        assert "\n" not in message
        return None


def rounding(*arrays):
    """About what float64 does to sums of the finite numbers of these arrays."""
    # As floats, since the smallest integer has no absolute value.
    floats = [np.asarray(a, float) for a in arrays]
    largest = [np.abs(a[np.isfinite(a)]).max(initial=0.0) for a in floats]
    return 1e-15 * 10 * float(sum(largest))


def check(posterior, answers, masks, knowns, error):
    """Check what holds for every posterior, given the answer and the constraints of each site.

    ``error`` is about what float64 does to log weights; beyond `PRECISE` nothing is compared.
    """
    assert None not in answers, "an answer to a problem that has none"
    n, m = posterior.shape
    table = posterior.marginals
    table = table if isinstance(table, np.ndarray) else table.toarray()
    tables = table.reshape(-1, n, m)
    rows = posterior.p_unmatched_rows.reshape(-1, n)
    cols = posterior.p_unmatched_cols.reshape(-1, m)
    assert len(tables) == len(answers)
    for part in (tables, rows, cols):
        assert np.isfinite(part).all()
        assert part.min(initial=0.0) >= 0
        assert part.max(initial=0.0) <= 1
    np.testing.assert_allclose(tables.sum(2) + rows, 1.0, rtol=0, atol=1e-6)
    np.testing.assert_allclose(tables.sum(1) + cols, 1.0, rtol=0, atol=1e-6)
    for marginals, mask, known in zip(tables, masks, knowns, strict=True):
        if mask is not None:
            assert (marginals[~mask] == 0).all()
        if known is not None:
            settled = np.flatnonzero(known >= 0)
            assert (marginals[settled, known[settled]] == 1).all()
    if posterior.log_evidence is not None:
        assert np.isfinite(posterior.log_evidence)
    if error > PRECISE:
        return
    if posterior.diagnostics.verdict == "trust":
        for marginals, alone, answer in zip(tables, rows, answers, strict=True):
            off = np.abs(marginals - answer.marginals).sum(1)
            off = (off + np.abs(alone - answer.p_unmatched_rows)) / 2
            assert off.max() < TRUSTED
    if posterior.log_evidence_kind == "exact":
        # Log densities that are JAX functions have float32's digits at worst.
        total = sum(answer.log_evidence for answer in answers)
        slack = 1e-6 * max(1.0, abs(total)) + 10 * error
        assert abs(posterior.log_evidence - total) <= slack
