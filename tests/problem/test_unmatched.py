"""The one meaning of "unmatched": the rule, and that models, engines and the command share it."""

import itertools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from typer.testing import CliRunner

import permvi as pv
from permvi import cli
from permvi.inference.exact import solve_exact
from permvi.models import _arguments
from permvi.problem.prepare import prepare
from permvi.problem.unmatched import UnmatchedWeights, build_weights, unmatched_weights

SHAPES = [(3, 3), (2, 4), (4, 2)]


def by_definition(scores, rows, cols):
    """Log weights of all matchings, from the sentences of the rule and nothing else."""
    n, m = scores.shape
    rows_are_free = rows is not None or n > m
    cols_are_free = cols is not None or m > n or rows is not None
    found = {}
    for perm in itertools.product(range(-1, m), repeat=n):
        used = [j for j in perm if j >= 0]
        unmatched = [i for i, j in enumerate(perm) if j < 0]
        unused = [j for j in range(m) if j not in used]
        if len(set(used)) < len(used):
            continue
        if (unmatched and not rows_are_free) or (unused and not cols_are_free):
            continue
        weight = sum(scores[i, j] for i, j in enumerate(perm) if j >= 0)
        weight += sum(0.0 if rows is None else rows[i] for i in unmatched)
        weight += sum(0.0 if cols is None else cols[j] for j in unused)
        if weight > -math.inf:
            found[perm] = weight
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("given", ["neither", "rows", "cols", "both"])
def test_the_rule_against_its_definition(rng, shape, given):
    n, m = shape
    scores = rng.normal(size=shape)
    rows = rng.normal(size=n) if given in ("rows", "both") else None
    cols = rng.normal(size=m) if given in ("cols", "both") else None
    found = by_definition(scores, rows, cols)
    result = solve_exact(scores, row_unmatched=rows, col_unmatched=cols)
    np.testing.assert_allclose(result.log_evidence, logsumexp(list(found.values())), rtol=1e-12)
    table = build_weights(scores, None, None, rows, cols)
    for perm, weight in found.items():
        np.testing.assert_allclose(table.of(np.array(perm)), weight, rtol=1e-12)


def test_weights_of_rows_alone_free_the_labels_of_a_square_table(rng):
    scores = rng.normal(size=(4, 4))
    alone = pv.fit(pv.models.LinearMatching(scores, row_unmatched=1.0), "exact")
    both = pv.fit(pv.models.LinearMatching(scores, row_unmatched=1.0, col_unmatched=0.0), "exact")
    np.testing.assert_allclose(alone.marginals, both.marginals)
    assert (alone.p_unmatched_rows > 0.1).any()
    np.testing.assert_allclose(alone.p_unmatched_rows.sum(), alone.p_unmatched_cols.sum())


# The first two compile for seconds what "importance" takes from the same problem.
@pytest.mark.parametrize(
    "method",
    [
        pytest.param("sequential", marks=pytest.mark.slow),
        pytest.param("mcmc", marks=pytest.mark.slow),
        "importance", "linear", "bethe", "map",
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::permvi.FitWarning")
def test_methods_share_the_rule(rng, method):
    scores = rng.normal(size=(3, 3))
    one_side = pv.models.LinearMatching(scores, row_unmatched=[2.0, -np.inf, 1.0])
    both = pv.models.LinearMatching(scores, row_unmatched=[2.0, -np.inf, 1.0], col_unmatched=0.0)
    found, expected = (pv.fit(model, method) for model in (one_side, both))
    np.testing.assert_array_equal(found.marginals, expected.marginals)
    assert found.p_unmatched_rows[1] == 0.0


def test_python_and_the_command_agree(tmp_path, rng):
    scores = np.round(rng.normal(size=(3, 3)), 3)
    names = ["a", "b", "c"]
    lines = [",".join(["item", *names])]
    lines += [",".join([f"r{i}", *map(str, row)]) for i, row in enumerate(scores.tolist())]
    path = tmp_path / "scores.csv"
    path.write_text("\n".join(lines))
    done = CliRunner().invoke(
        cli.app, ["match", str(path), "--kind", "scores", "--unmatched", "0.5", "--json"]
    )
    assert done.exit_code == 0, done.output
    posterior = pv.fit(pv.models.LinearMatching(scores, row_unmatched=0.5))
    told = json.loads(done.stdout)
    np.testing.assert_allclose(told["log_evidence"], posterior.log_evidence)


def test_weights_of_labels_alone_leave_items_matched(rng):
    scores = rng.normal(size=(3, 3))
    plain = pv.fit(pv.models.LinearMatching(scores), "exact")
    weighted = pv.fit(pv.models.LinearMatching(scores, col_unmatched=-1.0), "exact")
    np.testing.assert_array_equal(weighted.marginals, plain.marginals)


def test_known_pairs_do_not_change_what_the_rule_frees(rng):
    scores = rng.normal(size=(3, 4))
    known = np.array([0, -1, -1])
    posterior = pv.fit(pv.models.LinearMatching(scores, known=known, row_unmatched=0.3), "exact")
    found = {
        perm: weight
        for perm, weight in by_definition(scores, np.full(3, 0.3), None).items()
        if perm[0] == 0
    }
    np.testing.assert_allclose(posterior.log_evidence, logsumexp(list(found.values())), rtol=1e-12)
    problem = prepare(pv.models.LinearMatching(scores, known=known, row_unmatched=0.3)).problem
    assert problem.shape == (2, 3)
    np.testing.assert_array_equal(problem.unmatched.cols, np.zeros(3))


def test_weights_are_summed_under_jit_and_with_sites(rng):
    perms = np.array([[[0, -1], [1, 0]], [[-1, -1], [0, 1]]])
    weights = UnmatchedWeights(rng.normal(size=(2, 2)), rng.normal(size=(2, 3)))
    expected = [
        sum(
            sum(weights.rows[s, i] for i in range(2) if perm[s, i] < 0)
            + sum(weights.cols[s, j] for j in range(3) if j not in perm[s])
            for s in range(2)
        )
        for perm in perms
    ]
    np.testing.assert_allclose(weights.of(perms), expected)
    np.testing.assert_allclose(jax.jit(lambda x: weights.of(x))(jnp.asarray(perms)), expected)


def test_the_rule_under_a_trace():
    def total(rows):
        return unmatched_weights(rows, None, (2, 2)).of(jnp.array([-1, 0]))

    np.testing.assert_allclose(jax.jit(total)(jnp.array([0.7, 0.1])), 0.7)


def test_a_model_of_ours_is_not_checked_again(monkeypatch, rng):
    model = pv.models.LinearMatching(
        rng.normal(size=(3, 3)), known={0: 1}, mask=np.ones((3, 3), bool)
    )
    calls = []
    check = _arguments.known_pairs
    monkeypatch.setattr(_arguments, "known_pairs", lambda *a: calls.append(a) or check(*a))
    prepare(model)
    assert not calls

    class Own:
        shape, num_sites, known = (3, 3), 1, np.array([5, -1, -1])

        def log_density(self, X):
            return 0.0 * X.sum(axis=(-2, -1))

    with pytest.raises(ValueError, match="known must hold columns 0 to 2 or -1, got 5"):
        prepare(Own())
    assert len(calls) == 1
