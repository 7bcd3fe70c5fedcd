"""Neurons of several subjects that share one linear dynamical system on a known graph."""

from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from permvi._jax import pytree
from permvi._threads import single_threaded_blas
from permvi.models import _arguments, _dynamics_arguments, _innovations, _predictive
from permvi.models._dynamics_arguments import Statistics, empirical_scales, spectra
from permvi.models.linear import sum_of_pairs

_STATISTICS = Statistics._fields


@pytree(
    leaves=(*_STATISTICS, "edges", "weight_scale", "noise_scale", *_arguments.ARRAYS),
    static=("num_labels", "learned", "labels"),
)
class SharedDynamics(_arguments.Constrained):
    r"""Recordings of J subjects whose neurons are shuffled copies of one linear system.

    .. math::
        y^{(j)}_t = X_j W X_j^\top y^{(j)}_{t-1} + \sigma \epsilon_t, \qquad
        W_{ab} \sim N(0, \tau^2) \text{ on the support, else } 0,

    with ``X[j, i, a] = 1`` where neuron i of subject j is neuron a of the canonical set (Linderman
    et al. 2018, section 5). ``W[a, b]`` is the weight of b in the input of a. The model keeps only
    sums over time, so the cost of a density does not depend on the number of time steps.

    Subjects may be recorded for different times, and may have fewer neurons than the canonical set.
    A neuron's activity is conditioned on the *recorded* neurons one step before, so input from
    other neurons counts as noise. Smaller subjects are filled up with rows without data, whose
    labels are neurons that were not recorded.

    The latent ``W`` is the vector of weights on the edges of the support, in the order of
    ``edges``; `weights` turns it into a matrix.

    Args:
        recordings: (T, n) activity of one subject, or a sequence of J such arrays.
        support: (m, m) booleans, True where ``W[a, b]`` may differ from zero. The connectome.
        weight_scale: :math:`\tau`, or None to learn it (empirical Bayes).
        noise_scale: :math:`\sigma`, or None to learn it.
        mask: (n, m), or one for each subject: booleans, True where a neuron may have a label.
        known: (n,), or one for each subject: known labels, -1 for unknown.
        labels: A pair: names of the rows, names of the canonical neurons, either of them None.
        prior_scores: (n, m), or one for each subject: log prior weights, e.g. of positions.

    Raises:
        ValueError: Shapes do not fit, or something is not finite.
        TypeError: Something is of the wrong kind.
    """

    C0: Any
    C1: Any
    squares: Any
    num_steps: Any
    recorded: Any
    edges: Any
    weight_scale: Any
    noise_scale: Any
    num_labels: int
    learned: tuple[bool, bool]

    def __init__(
        self,
        recordings: Any,
        support: Any,
        *,
        weight_scale: float | None = None,
        noise_scale: float | None = None,
        mask: Any = None,
        known: Any = None,
        labels: Any = None,
        prior_scores: Any = None,
    ) -> None:
        # The sums that the density needs say nothing of whiteness and tails.
        self._recordings = _dynamics_arguments.recordings(recordings)
        with single_threaded_blas():
            parts = [Statistics.of(each) for each in self._recordings]
        self._set(
            parts,
            support,
            (weight_scale, noise_scale),
            mask=mask,
            known=known,
            labels=labels,
            prior_scores=prior_scores,
        )

    @classmethod
    def from_statistics(
        cls, C0: Any, C1: Any, squares: Any, num_steps: Any, support: Any, **settings: Any
    ) -> Self:
        r"""Make the model from sums over time instead of recordings.

        Args:
            C0: (n, n), or one for each subject: :math:`\sum_t y_{t-1} y_{t-1}^\top`.
            C1: Likewise: :math:`\sum_t y_t y_{t-1}^\top`.
            squares: (n,), or one for each subject: :math:`\sum_t y_t^2`.
            num_steps: Number of transitions in the sums, a number or one for each subject.
            support: See the class.
            **settings: The other arguments of the class.
        """
        model = object.__new__(cls)
        parts = _dynamics_arguments.statistics(C0, C1, squares, num_steps)
        scales = settings.pop("weight_scale", None), settings.pop("noise_scale", None)
        model._set(parts, support, scales, **settings)
        return model

    def _set(
        self, parts: list[Statistics], support: Any, scales: tuple[Any, Any], **constraints: Any
    ) -> None:
        allowed = _dynamics_arguments.support(support)
        self.num_labels = len(allowed)
        sizes = [part.C0.shape[-1] for part in parts]
        _dynamics_arguments.check_sizes(sizes, self.num_labels)
        n = max(sizes)
        stacked = Statistics.stack([part.padded(n) for part in parts])
        vars(self).update(stacked._asdict())
        self.edges = np.argwhere(allowed)
        weight, noise = (
            _dynamics_arguments.scale(name, value)
            for name, value in zip(("weight_scale", "noise_scale"), scales, strict=True)
        )
        self.learned = weight is None, noise is None
        # Sums must not depend on the number of threads, or the same seed gives other fits.
        with single_threaded_blas():
            found = empirical_scales(spectra(*stacked), allowed.mean(), weight, noise)
        self.weight_scale, self.noise_scale = (np.float64(scale) for scale in found)
        filled = _dynamics_arguments.fill_up(constraints, sizes, self.num_labels)
        table = (*((len(parts),) if len(parts) > 1 else ()), n, self.num_labels)
        self._constrain(table, _dynamics_arguments.support_labels(support), **filled)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of recorded neurons (of the largest subject) and of canonical ones."""
        return self.C0.shape[-1], self.num_labels

    @property
    def num_sites(self) -> int:
        """J, the number of subjects."""
        return self.C0.shape[-3]

    @property
    def support(self) -> np.ndarray:
        """The support (m, m), True where weights may differ from zero."""
        allowed = np.zeros((self.num_labels, self.num_labels), bool)
        allowed[tuple(np.asarray(self.edges).T)] = True
        return allowed

    @property
    def latents(self) -> Mapping[str, Any]:
        """The prior of the weights on the edges, (E,)."""
        from numpyro.distributions import Normal

        scale = jnp.full(self.edges.shape[:1], 1.0) * jnp.asarray(self.weight_scale)
        return {"W": Normal(jnp.zeros_like(scale), scale).to_event(1)}

    def weights(self, W: ArrayLike) -> jax.Array:
        """Turn weights on the edges (..., E) into matrices (..., m, m), zero off the support."""
        W = jnp.asarray(W)
        zeros = jnp.zeros((*W.shape[:-1], self.num_labels, self.num_labels), W.dtype)
        edges = jnp.asarray(self.edges)
        return zeros.at[..., edges[:, 0], edges[:, 1]].set(W)

    def log_density(self, X: ArrayLike, W: ArrayLike) -> jax.Array:
        r"""Return the log density of the recordings given permutations and weights.

        With :math:`M_j = X_j W X_j^\top`, for 0/1 and for relaxed matrices,

        .. math::
            -\frac{1}{2 \sigma^2} \sum_j \bigl[ Y_j - 2 \langle C_{1j}, M_j \rangle
            + \langle M_j C_{0j}, M_j \rangle \bigr] - \frac{N}{2} \log 2 \pi \sigma^2 .

        X is (..., n, m), or (..., J, n, m) with several subjects; W is (..., E), on the edges.
        """
        X = self._with_sites(jnp.asarray(X), 2)
        mapped = X @ self.weights(W)[..., None, :, :] @ jnp.swapaxes(X, -1, -2)
        return self._density_of_weights(mapped)

    def log_density_of(self, perm: ArrayLike, W: ArrayLike) -> jax.Array:
        """Return the log density for permutations (..., n) or (..., J, n)."""
        perm = self._with_sites(jnp.asarray(perm), 1)
        mapped = jnp.vectorize(lambda w, p: w[p[:, None], p], signature="(m,m),(n)->(n,n)")(
            self.weights(W)[..., None, :, :], perm
        )
        return self._density_of_weights(mapped)

    def delta(self, perm: ArrayLike, i: Any, k: Any, *site: Any, W: ArrayLike) -> jax.Array:
        """Return what swapping the labels of rows i and k adds to `log_density_of`, in O(n^2).

        ``perm`` is (n,), or (J, n) with the subject as ``site`` if there are several. The weights W
        on the edges are (E,).
        """
        j = site[0] if site else 0
        C0, C1 = jnp.asarray(self.C0)[j], jnp.asarray(self.C1)[j]
        recorded = jnp.asarray(self.recorded)[j]
        labels = jnp.asarray(perm)[site]
        rows = jnp.stack([i, k])
        table = self.weights(W)
        after_labels = labels.at[rows].set(labels[rows[::-1]])
        # The weights change in two rows and, in all other rows, in two columns.
        other = recorded.at[rows].set(False)
        before, after = (table[p[rows][:, None], p] for p in (labels, after_labels))
        left, right = (table[p[:, None], p[rows]] for p in (labels, after_labels))

        def of_rows(M: jax.Array) -> jax.Array:
            terms = 2 * C1[rows] * M - (M @ C0) * M
            return jnp.sum(jnp.where(recorded[rows][:, None], terms, 0))

        moved = right - left
        whole = table[labels[:, None], labels]
        linear = 2 * (C1[:, rows] - whole @ C0[:, rows]) * moved
        square = (moved @ C0[rows[:, None], rows]) * moved
        of_others = jnp.sum(jnp.where(other[:, None], linear - square, 0))
        gain = of_rows(after) - of_rows(before) + of_others
        return gain / (2 * jnp.asarray(self.noise_scale) ** 2)

    def collapsed_log_density(self, perm: Any) -> np.ndarray:
        r"""Return the log density of the recordings given permutations, the weights integrated out.

        This is a ridge regression for each canonical neuron a with inputs b on the support,

        .. math::
            \sum_a \Bigl[ \frac{r_a^\top (S_a + \lambda I)^{-1} r_a}{2 \sigma^2}
            - \frac12 \log\det (I + S_a / \lambda) \Bigr] - \frac{Y}{2 \sigma^2}
            - \frac{N}{2} \log 2 \pi \sigma^2 , \qquad \lambda = \sigma^2 / \tau^2 ,

        where :math:`S_a` and :math:`r_a` add up the statistics of the subjects that have a
        recording of a. Integers (..., n) or (..., J, n) give (...) log densities, on the host in
        float64.
        """
        perms = np.asarray(perm)
        ndim = 1 if self.num_sites == 1 else 2
        n = self.shape[0]
        flat = perms.reshape(-1, self.num_sites, n)
        values = [_dynamics_arguments.log_evidence(self, each) for each in flat]
        return np.array(values).reshape(perms.shape[: perms.ndim - ndim])

    @property
    def auto_method(self) -> tuple[str, dict[str, Any]]:
        """The method of ``method="auto"``, which integrates the weights out."""
        return "collapsed", {}

    def shared_regression(self) -> dict[str, Any]:
        """Return the statistics for method "collapsed" by name, on the host.

        These are ``C0``, ``C1``, ``squares``, ``num_steps`` and ``recorded`` of all subjects with
        as many rows as labels, (J, m, m) and so on; ``support``; ``mask``, which includes the known
        pairs, and ``prior``, both (J, m, m); the scales, and whether they are learned.
        """
        statistics = Statistics(*(np.asarray(getattr(self, name)) for name in _STATISTICS))
        scales = float(self.weight_scale), float(self.noise_scale)
        return self._regression(statistics, scales)

    def forgiving_regression(self) -> dict[str, Any]:
        """Return `shared_regression` with statistics that allow for heavy-tailed innovations.

        They are those of the recordings where the innovations look normal, where the noise scale is
        given, and where the model was made from sums over time. Otherwise they are sums of
        pseudo-observations, see `permvi.models._innovations`, and ``degrees`` has the degrees of
        freedom of the innovations. Where innovations are normal and their scale is unknown,
        ``filtered`` is `filtered_statistics`.
        """
        recordings = getattr(self, "_recordings", None)
        if recordings is None or not self.learned[1]:
            return self.shared_regression()
        weight, noise = float(self.weight_scale), float(self.noise_scale)
        density = len(self.edges) / self.num_labels**2
        with single_threaded_blas():
            parts = [Statistics.of(each) for each in recordings]
            found = _innovations.heavy_tailed(recordings, parts, noise**2 / (weight**2 * density))
            if found is None:
                return {**self.shared_regression(), "filtered": self.filtered_statistics}
            n = self.shape[0]
            statistics = Statistics.stack([part.padded(n) for part in found[0]])
            given = None if self.learned[0] else weight
            scales = empirical_scales(spectra(*statistics), density, given, None)
        return {**self._regression(statistics, scales), "degrees": found[1].degrees}

    def filtered_statistics(
        self, weights: np.ndarray, perms: np.ndarray, gain: float
    ) -> dict[str, np.ndarray]:
        """Return ``C0`` and ``C1`` of `shared_regression` with inputs free of measurement noise.

        A Kalman filter with weights (m, m), permutations (J, m) and a steady gain computes the
        inputs; at gain one they are the recordings.
        """
        with single_threaded_blas():
            parts = [
                _innovations.filtered_statistics(
                    activity, weights[np.ix_(*[perm[: activity.shape[1]]] * 2)], gain
                ).padded(self.num_labels)
                for activity, perm in zip(self._recordings, perms, strict=True)
            ]
        return {name: np.stack([getattr(part, name) for part in parts]) for name in ("C0", "C1")}

    def _regression(self, statistics: Statistics, scales: tuple[float, float]) -> dict[str, Any]:
        (n, m), J = self.shape, self.num_sites
        mask = _dynamics_arguments.square_mask(self.mask, self.known, J, self.shape)
        prior = np.zeros((J, m, m))
        if self.prior_scores is not None:
            prior[:, :n] = self.prior_scores
        return {
            **statistics.padded(m)._asdict(),
            "support": self.support,
            "mask": np.ones((J, m, m), bool) if mask is None else mask.reshape(J, m, m),
            "prior": prior,
            "weight_scale": scales[0],
            "noise_scale": scales[1],
            "learn_weight": self.learned[0],
            "learn_noise": self.learned[1],
        }

    def predictive_tests(
        self, draws: np.ndarray, latents: Mapping[str, Any]
    ) -> _predictive.Findings | str:
        """Test the innovations of the recordings, given permutations (num, n) or (num, J, n).

        Their law is the one that the fit has found, see `_innovations`.
        """
        if getattr(self, "_recordings", None) is None:
            return "the model was made from sums over time, without recordings"
        perms = draws.reshape(len(draws), self.num_sites, self.shape[0])
        rng = np.random.default_rng(_predictive.SEED)
        with single_threaded_blas():
            z = _innovations.standardised(self, self._recordings, perms, latents, rng)
        return _innovations.tests(z, known_scale=not self.learned[1])

    @property
    def num_predicted(self) -> int:
        """The number of recorded values."""
        return int((self.num_steps * self.recorded.sum(axis=-1)).sum())

    def numpyro_model(self, width: float | None = None) -> None:
        """Run the model as a NumPyro program, for `permvi.AutoPermutation` and other inference.

        Its sites are ``W``, (E,), and ``X``, (m, m) or (J, m, m). Rows of X beyond the recorded
        ones take the labels that are left over. ``width`` is that of the prior of X, by default
        that of `permvi.distributions.VertexPrior`.
        """
        # Imported here because NumPyro takes its time, and most models do without it.
        import numpyro

        from permvi.distributions.vertex_prior import DEFAULT_WIDTH, VertexPrior

        W = numpyro.sample("W", self.latents["W"])
        mask = _dynamics_arguments.square_mask(self.mask, self.known, self.num_sites, self.shape)
        prior = VertexPrior(self.num_labels, DEFAULT_WIDTH if width is None else width, mask)
        if self.num_sites == 1:
            X = numpyro.sample("X", prior)
        else:
            with numpyro.plate("subjects", self.num_sites):
                X = numpyro.sample("X", prior)
        X = X[..., : self.shape[0], :]
        value = self.log_density(X, W)
        if self.prior_scores is not None:
            value = value + sum_of_pairs(self.prior_scores, X, self.num_sites)
        numpyro.factor("recordings", value)

    def _with_sites(self, array: jax.Array, ndim: int) -> jax.Array:
        """Add a site axis before the last ``ndim`` axes if there is only one subject."""
        return jnp.expand_dims(array, -ndim - 1) if self.num_sites == 1 else array

    def _density_of_weights(self, mapped: jax.Array) -> jax.Array:
        """Return log densities (...) given weights (..., J, n, n) among each subject's neurons."""
        C0, C1 = jnp.asarray(self.C0), jnp.asarray(self.C1)
        targets = jnp.asarray(self.recorded)[..., :, None]
        fit = 2 * C1 * mapped - jnp.matmul(mapped, C0, precision="highest") * mapped
        fit = jnp.sum(jnp.where(targets, fit, 0), axis=(-3, -2, -1))
        variance = jnp.asarray(self.noise_scale) ** 2
        count = jnp.sum(jnp.asarray(self.num_steps) * jnp.sum(jnp.asarray(self.recorded), axis=-1))
        constant = jnp.sum(jnp.asarray(self.squares)) / variance
        return 0.5 * (fit / variance - constant - count * jnp.log(2 * jnp.pi * variance))
