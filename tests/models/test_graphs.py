"""GraphMatching: its density, its swap differences, its checks, and that it is a pytree."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import permvi as pv
from permvi import permutations
from permvi.models import GraphMatching, Model, fingerprint


def by_loops(A, B, C, perm, scale=1.0):
    """The log density of one matching, entry by entry."""
    n = len(A)
    total = sum(C[i, perm[i]] for i in range(n) if perm[i] >= 0)
    for i in range(n):
        for k in range(n):
            if perm[i] >= 0 and perm[k] >= 0:
                total += scale * A[i, k] * B[perm[i], perm[k]]
    return total


def tolerance():
    """For sums of at most 36 numbers of order one."""
    return 1e-12 if jnp.zeros(1).dtype == jnp.float64 else 1e-4


# One compilation for each shape, rather than one for each operation.
swap_gain = jax.jit(lambda model, perm, i, j: model.delta(perm, i, j))
density = jax.jit(lambda model, X: model.log_density(X))
density_of = jax.jit(lambda model, perm: model.log_density_of(perm))


def random_case(rng, n, m):
    """Directed graphs with loops, a linear part, and matchings, some with unmatched rows."""
    A, B, C = rng.normal(size=(n, n)), rng.normal(size=(m, m)), rng.normal(size=(n, m))
    size = max(n, m)
    perms = np.stack([rng.permutation(size)[:n] for _ in range(12)])
    return A, B, C, np.where(perms < m, perms, -1)


@pytest.mark.float32
@pytest.mark.parametrize(("n", "m"), [(5, 5), (3, 6), (6, 4), (1, 1)])
def test_density_is_the_sum_over_edges(rng, n, m):
    A, B, C, perms = random_case(rng, n, m)
    model = GraphMatching(A, B, -0.7, C)
    wanted = [by_loops(A, B, C, perm, -0.7) for perm in perms]
    rtol = tolerance()
    np.testing.assert_allclose(density_of(model, perms), wanted, rtol=rtol, atol=rtol)
    matrices = np.asarray(jax.nn.one_hot(perms, m))
    np.testing.assert_allclose(density(model, matrices), wanted, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(density_of(model, perms[3]), wanted[3], rtol=rtol, atol=rtol)
    assert isinstance(model, Model)
    assert (model.shape, model.num_sites) == ((n, m), 1)


def test_the_edge_from_i_to_k_meets_that_of_their_labels():
    # One directed edge 0 -> 1, and one 2 -> 0: only perm[0] = 2, perm[1] = 0 matches them.
    A, B = np.zeros((3, 3)), np.zeros((3, 3))
    A[0, 1], B[2, 0] = 1.0, 1.0
    perms = permutations.enumerate_permutations(3)
    values = np.asarray(GraphMatching(A, B).log_density_of(perms))
    np.testing.assert_array_equal(perms[values > 0], [[2, 0, 1]])


def test_the_density_of_relaxed_matrices_is_the_quadratic_form(rng):
    A, B, C, _ = random_case(rng, 3, 4)
    X = rng.random((2, 5, 3, 4))
    found = GraphMatching(A, B, 1.5, C).log_density(X)
    wanted = 1.5 * np.einsum("ik,...ij,jl,...kl->...", A, X, B, X) + np.einsum(
        "ij,...ij->...", C, X
    )
    np.testing.assert_allclose(found, wanted)


@pytest.mark.float32
@pytest.mark.parametrize(("n", "m"), [(5, 5), (3, 6), (6, 4)])
@pytest.mark.parametrize("linear", [True, False])
def test_delta_is_the_difference_of_two_densities(rng, n, m, linear):
    A, B, C, perms = random_case(rng, n, m)
    model = GraphMatching(A, B, 1.3, C if linear else None)
    case, i, j = (part.ravel() for part in np.indices((len(perms), n, n)))
    before, rows = perms[case], np.arange(len(case))
    after = before.copy()
    after[rows, i], after[rows, j] = before[rows, j], before[rows, i]
    wanted = density_of(model, after) - density_of(model, before)
    np.testing.assert_allclose(swap_gain(model, before, i, j), wanted, atol=tolerance())
    if n == m:
        one_row = swap_gain(model, perms[5], 0, np.arange(n))
        alone = [swap_gain(model, perms[5], 0, j) for j in range(n)]
        np.testing.assert_allclose(one_row, alone, atol=tolerance())


def test_the_hook_for_quadratic_methods_has_all_of_it(rng):
    A, B, C, perms = random_case(rng, 4, 5)
    scaled, other, linear = GraphMatching(A, B, -2.0, C).quadratic
    wanted = GraphMatching(A, B, -2.0, C).log_density_of(perms)
    np.testing.assert_allclose([by_loops(scaled, other, linear, p) for p in perms], wanted)
    assert not GraphMatching(A, B).quadratic[2].any()


def test_it_is_not_taken_for_a_linear_model(rng):
    A, B, C, _ = random_case(rng, 4, 4)
    model = GraphMatching(A, B, 1.0, C)
    exact = pv.fit(model, "exact")
    perms = permutations.enumerate_permutations(4)
    values = [by_loops(A, B, C, perm) for perm in perms]
    assert exact.log_evidence == pytest.approx(np.logaddexp.reduce(values))
    np.testing.assert_array_equal(exact.mode, perms[np.argmax(values)])


def test_gaussian_noise(rng):
    W, Y, C = rng.normal(size=(4, 4)), rng.normal(size=(4, 4)), rng.normal(size=(4, 4))
    perms = permutations.enumerate_permutations(4)
    mask = ~np.eye(4, dtype=bool)
    model = GraphMatching.gaussian(Y, W, 0.6, C, mask=mask)
    assert model.mask is not None
    allowed = perms[(perms != np.arange(4)).all(axis=1)]
    wanted = [
        norm.logpdf(Y, W[np.ix_(perm, perm)], 0.6).sum() + C[range(4), perm].sum()
        for perm in allowed
    ]
    np.testing.assert_allclose(density_of(model, allowed), wanted)
    matrices = permutations.to_matrix(allowed)
    np.testing.assert_allclose(density(model, matrices), wanted)


@pytest.mark.parametrize("undirected", [False, True])
def test_flipped_edges(rng, undirected):
    W, Y = (rng.random((2, 5, 5)) < 0.5) & ~np.eye(5, dtype=bool)
    if undirected:
        W, Y = np.triu(W) | np.triu(W).T, np.triu(Y) | np.triu(Y).T
    C = rng.normal(size=(5, 5))
    pairs = np.triu_indices(5, 1) if undirected else np.where(~np.eye(5, dtype=bool))
    model = GraphMatching.flips(Y.astype(float), W.astype(float), 0.1, C)
    perms = permutations.enumerate_permutations(5)
    wanted = []
    for perm in perms:
        flipped = (W[np.ix_(perm, perm)] != Y)[pairs]
        wanted.append(np.log(np.where(flipped, 0.1, 0.9)).sum() + C[range(5), perm].sum())
    np.testing.assert_allclose(density_of(model, perms), wanted)
    np.testing.assert_allclose(density(model, permutations.to_matrix(perms)), wanted)


def test_models_are_pytrees(rng):
    models = [GraphMatching(*rng.normal(size=(2, 3, 3)), 0.5) for _ in range(2)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *models)
    perm = jnp.array([1, 2, 0])
    found = jax.vmap(lambda model: density_of(model, perm))(stacked)
    np.testing.assert_allclose(found, [density_of(model, perm) for model in models])
    changed = GraphMatching(models[0].A, models[0].B, 0.6)
    assert fingerprint(changed) != fingerprint(models[0])

    @jax.jit
    def noisy(W, sigma):
        return GraphMatching.gaussian(jnp.eye(3), W, sigma).log_density_of(perm)

    wanted = norm.logpdf(np.eye(3), models[0].A[np.ix_([1, 2, 0], [1, 2, 0])], 0.3).sum()
    np.testing.assert_allclose(noisy(models[0].A, 0.3), wanted)


def test_frames_bring_labels():
    nodes = ["u", "v", "w"]
    A = pd.DataFrame(np.eye(3), index=nodes, columns=nodes)
    B = pd.DataFrame(np.eye(4), index=list("abcd"), columns=list("abcd"))
    model = GraphMatching(A, B, known={"u": "c"})
    assert model.labels == (("u", "v", "w"), ("a", "b", "c", "d"))
    assert model.known.tolist() == [2, -1, -1]
    with pytest.raises(ValueError, match="A must name its rows and columns alike"):
        GraphMatching(A[["v", "u", "w"]], B)


def test_forbidden_scores_are_ignored():
    scores = [[0.0, -np.inf], [np.nan, 1.0]]
    model = GraphMatching(np.zeros((2, 2)), np.ones((2, 2)), 1.0, scores, mask=np.eye(2) > 0)
    assert float(density(model, np.eye(2))) == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"A": np.zeros((2, 3))}, r"A must be square, got shape \(2, 3\)"),
        ({"B": np.zeros(3)}, r"B must be a non-empty array with 2 axes, got shape \(3,\)"),
        ({"A": [[0.0, np.inf], [0.0, 0.0]]}, r"A must be finite, got inf at index \(0, 1\)"),
        ({"scale": np.nan}, "scale must be finite, got nan"),
        ({"scores": np.zeros((2, 2))}, r"scores must have shape \(2, 3\), got shape \(2, 2\)"),
        ({"mask": np.ones((3, 3), bool)}, r"mask must have shape \(2, 3\)"),
        ({"known": [5, -1]}, "known must hold columns 0 to 2 or -1, got 5"),
    ],
)
def test_mistakes_get_one_sentence(arguments, message):
    given = {"A": np.zeros((2, 2)), "B": np.zeros((3, 3)), **arguments}
    with pytest.raises(ValueError, match=message) as caught:
        GraphMatching(**given)
    assert "\n" not in str(caught.value)


def test_mistakes_with_gaussian_noise_get_one_sentence():
    square = np.zeros((2, 2))
    with pytest.raises(ValueError, match="observed and reference must have the same shape"):
        GraphMatching.gaussian(square, np.zeros((3, 3)), 1.0)
    with pytest.raises(ValueError, match=r"scale must be positive, got 0\.0"):
        GraphMatching.gaussian(square, square, 0.0)
    with pytest.raises(ValueError, match="row_unmatched must be None"):
        GraphMatching.gaussian(square, square, 1.0, row_unmatched=-1.0)


def test_mistakes_with_flipped_edges_get_one_sentence():
    edges = np.array([[0.0, 1.0], [0.0, 0.0]])
    for observed, reference, probability, message in (
        (edges, np.zeros((3, 3)), 0.1, "observed and reference must have the same shape"),
        (2 * edges, edges, 0.1, "observed must have entries 0 and 1 and no loops"),
        (edges, np.eye(2), 0.1, "reference must have entries 0 and 1 and no loops"),
        (edges, edges, 1.0, r"probability must be between 0 and 1, got 1\.0"),
    ):
        with pytest.raises(ValueError, match=message):
            GraphMatching.flips(observed, reference, probability)
    with pytest.raises(ValueError, match="col_unmatched must be None for graphs with flipped"):
        GraphMatching.flips(edges, edges, 0.1, col_unmatched=-1.0)
