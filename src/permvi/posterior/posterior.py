"""The posterior that every method of inference returns."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from permvi._checks import is_concrete, one_of, whole
from permvi._version import __version__
from permvi.posterior import _fields, export, items, joint, predictive
from permvi.posterior.diagnostics import Diagnostics, diagnose
from permvi.posterior.items import Item, Labels
from permvi.posterior.latents import Latent
from permvi.posterior.laws import DrawsLaw, Law, SolvedLaw
from permvi.posterior.marginals import Marginals, check_marginals
from permvi.problem.sites import Layout

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

# Python's own types, so that a posterior equals itself after saving and loading.
_PLAIN = {
    "log_evidence": float, "log_evidence_se": float, "seed": int, "num_evaluations": int,
    "seconds": float,
}  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Posterior:
    """A posterior over matchings of n items (rows) with m labels (columns), on the host.

    Shapes are those of one permutation; with several, all arrays have a leading site axis. Arrays
    are float64 and read-only. A row of ``marginals`` and its entry of ``p_unmatched_rows`` sum to
    one, and so do a column and its entry of ``p_unmatched_cols``.

    Attributes:
        law: The distribution that gives draws and probabilities.
        marginals: (n, m) P(item i is label j); a ``scipy.sparse.csr_array`` of the possible pairs
            if there are more than 25 million cells.
        p_unmatched_rows: (n,) P(item i has no label), zeros where everything must match.
        p_unmatched_cols: (m,) P(label j has no item).
        mode: (n,) the most probable matching found, -1 for unmatched.
        log_evidence: ``log sum_x p(x, data)``, or None where the method gives none.
        log_evidence_kind: "exact", "bound" (from below) or "estimate".
        log_evidence_se: Standard error of the log evidence.
        latents: Other latent variables by name.
        diagnostics: The verdict, its reasons and the signals behind it.
        labels: Names of rows and names of columns, each None where there are none.
        method: Name of the method.
        settings: Settings of the method, as JSON values.
        seed: Seed of the fit.
        fingerprint: Hexadecimal SHA-256 of the model's arrays.
        version: Version of permvi that computed the posterior.
        num_evaluations: Number of log densities evaluated.
        seconds: Duration of the fit.
        model_check: Whether the model fits its data, once `check` was called, else None.

    Raises:
        ValueError: Shapes do not fit, or sums are off by more than 1e-6.
    """

    law: Law
    marginals: Any
    p_unmatched_rows: np.ndarray = None  # type: ignore[assignment]
    p_unmatched_cols: np.ndarray = None  # type: ignore[assignment]
    mode: np.ndarray
    log_evidence: float | None = None
    log_evidence_kind: _fields.EvidenceKind | None = None
    log_evidence_se: float | None = None
    latents: Mapping[str, Latent] = field(default_factory=dict)
    diagnostics: Diagnostics = field(default_factory=diagnose)
    labels: Labels = (None, None)
    method: str = "unknown"
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    fingerprint: str | None = None
    version: str = __version__
    num_evaluations: int | None = None
    seconds: float | None = None
    model_check: predictive.ModelCheck | None = None

    def __post_init__(self) -> None:
        checked = check_marginals(self.marginals, self.p_unmatched_rows, self.p_unmatched_cols)
        layout = Layout.of("marginals", checked.marginals.shape)
        mode = layout.check_distinct("mode", self.mode).copy()
        if mode.shape != layout.event_shape:
            raise ValueError(f"mode must have shape {layout.event_shape}, got shape {mode.shape}.")
        for name, array in (*checked._asdict().items(), ("mode", mode)):
            parts = (array.data, array.indices, array.indptr) if issparse(array) else (array,)
            for part in parts:
                part.flags.writeable = False
            object.__setattr__(self, name, array)
        _fields.evidence(self.log_evidence, self.log_evidence_kind)
        for name, convert in _PLAIN.items():
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else convert(value))
        object.__setattr__(self, "latents", _fields.latents(self.latents))
        object.__setattr__(self, "labels", _fields.labels(self.labels, layout))
        object.__setattr__(self, "settings", _fields.plain_json(self.settings))

    @classmethod
    def from_exact(cls, law: SolvedLaw, **fields: Any) -> Self:
        """Make the posterior of a law that is known exactly.

        Args:
            law: An ``ExactLaw`` or a ``TabularLaw``.
            **fields: Other fields of the class: ``method``, ``labels``, ``settings``, ...
        """
        known = {"log_evidence_kind": "exact", "method": "exact", **law.summary()._asdict()}
        return cls(law=law, **{"diagnostics": diagnose(exact=True), **known, **fields})

    @classmethod
    def from_draws(
        cls,
        draws: ArrayLike,
        log_weights: ArrayLike | None = None,
        *,
        shape: tuple[int, int],
        mode: ArrayLike | None = None,
        **fields: Any,
    ) -> Self:
        """Make the posterior of draws, whose weighted frequencies are its marginals.

        Args:
            draws: (num, n) or (num, sites, n) matchings, -1 for unmatched, repeats allowed.
            log_weights: (num,) log weights up to a constant; equal weights by default.
            shape: The numbers of rows and columns.
            mode: The mode, which may not be among the draws; by default the draw of largest total
                weight.
            **fields: Other fields of the class: ``method``, ``labels``, ``diagnostics``, ...
        """
        perms = np.asarray(draws)
        sites = perms.shape[1:-1]
        if perms.ndim == 3 and sites == (1,):
            perms, sites = perms[:, 0], ()
        layout = Layout.of("draws", (*sites, *shape))
        law = DrawsLaw(layout.check_distinct("draws", perms), log_weights)
        found = Marginals(*law.marginals(layout))
        best = law.top(1)[0][0] if mode is None else np.asarray(mode)
        return cls(law=law, **found._asdict(), mode=best, **fields)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of items n and of labels m."""
        n, m = self.marginals.shape[-2:]
        return n, m

    @property
    def num_sites(self) -> int:
        """The number of permutations."""
        return self._layout.num_sites

    @property
    def entropy(self) -> np.ndarray:
        """Entropies (n,) of the items' labels in nats, 'unmatched' included."""
        return items.entropies(self._marginals)

    @property
    def joint_entropy(self) -> float | None:
        """Entropy of the whole matching in nats, or None if the law does not give it."""
        return self.law.entropy

    def sample(self, num: int, seed: int = 0) -> np.ndarray:
        """Draw matchings.

        Args:
            num: Number of draws.
            seed: The same seed gives the same draws.

        Returns:
            (num, n) or (num, sites, n) integers, -1 for unmatched.
        """
        return self.law.sample(whole("num", num), np.random.default_rng(seed))

    def log_prob(self, perm: ArrayLike) -> Any:
        """Return log probabilities of matchings, -inf for impossible ones.

        Inside ``jax.jit`` and ``jax.vmap`` this uses a callback to the host.

        Args:
            perm: (..., n) or (..., sites, n) integers, -1 for unmatched.

        Returns:
            (...) log probabilities: a NumPy array, or a JAX array inside transformations.

        Raises:
            ValueError: The method gives draws but no probabilities.
        """
        if "jax" in sys.modules and not isinstance(perm, np.ndarray) and not is_concrete(perm):
            return self._traced_log_prob(perm)
        return self.law.log_prob(self._layout.check("perm", perm))

    def _traced_log_prob(self, perm: Any) -> Any:
        """Return `log_prob` of an array that is traced by JAX."""
        if hasattr(self.law, "traced_log_prob"):
            return self.law.traced_log_prob(perm)
        import jax
        import jax.numpy as jnp

        dtype = jnp.result_type(float)
        result = jax.ShapeDtypeStruct(perm.shape[: perm.ndim - self.mode.ndim], dtype)

        def on_host(values: Any) -> np.ndarray:
            return np.asarray(self.log_prob(np.asarray(values)), dtype)

        return jax.pure_callback(on_host, result, perm, vmap_method="expand_dims")

    def top(self, k: int = 10, *, names: bool = False) -> list:
        """Return the k most probable matchings with their probabilities, or as many as are known.

        Exact for linear models (Murty's algorithm) and tables, else from the draws. The first is
        always the ``mode``.

        Returns:
            A list of `Matching`, or with ``names`` of `NamedMatching`: dictionaries from items to
            labels (None: unmatched).
        """
        perms, probs = joint.top(self, whole("k", k))
        return items.matchings(perms, probs, self.labels, names=names)

    def credible_sets(self, level: float = 0.95, *, names: bool = False) -> Any:
        """Return each item's fewest labels (-1: unmatched) whose probabilities reach ``level``.

        Returns:
            A list over items (with several sites, a list of such lists) of tuples of labels, most
            probable first; with ``names``, dictionaries from items to labels (None: unmatched).
        """
        sets = items.credible_sets(self._marginals, level)
        return items.sets_by_name(sets, self.labels) if names else sets

    def probability(
        self, pairs: Mapping[Any, Any], excluding: Mapping[Any, Any] | None = None
    ) -> joint.Probability:
        """Return the probability that several statements about items hold together.

        It is exact where the law is (methods "exact" and enumeration), else the share of draws with
        a standard error. Statements about one item always agree with the marginals.

        Args:
            pairs: Items and their labels, all of which must hold. Strings are names and integers
                indices; None, -1 or "unmatched" stand for no label, and a list or set of labels for
                any of them. With several sites an item is a pair (site, item).
            excluding: Items and labels (or lists of labels) that they must *not* have.

        Returns:
            A float with its standard error as attribute ``se``, 0 where it is exact.

        Raises:
            ValueError: A name is unknown, or the method gives marginals only and the statement is
                about several items.

        Examples:
            ``posterior.probability({"r1": "Anna", "r2": "Bea"})``, or
            ``posterior.probability({"r1": "Anna"}, excluding={"r2": ["Bea", None]})``.
        """
        return joint.probability(self, pairs, excluding or {})

    def together(self, *items: Any, k: int = 10) -> joint.Together:
        """Return whether items share a label, and which labels they have together.

        Two items of different sites may be the same thing, such as one neuron seen in two animals:
        ``together((0, "AVA"), (1, 7)).same`` is the probability that their label is the same (both
        unmatched does not count). In one permutation items never share a label, so ``same`` is 0,
        and ``labels`` tells how their labels depend on each other.

        Args:
            *items: Two or more items; names, indices or pairs as in `probability`.
            k: The most joint labels to return.

        Returns:
            ``same``, and ``labels``, the k most probable joint labels found, each with the labels
            in the order of the items (None: unmatched) and its probability.
        """
        return joint.together(self, items, k)

    def credible_matchings(
        self, level: float = 0.95, max_matchings: int = 1000
    ) -> joint.CredibleMatchings:
        """Return the smallest set of whole matchings whose probability reaches ``level``.

        Where no such set is known, because it is larger than ``max_matchings`` or the draws are too
        few, ``reached`` is False, ``note`` says why, and the matchings are the best that are known.
        """
        return joint.credible_matchings(self, level, max_matchings)

    def expected_loss(self, loss: items.Loss = "hamming") -> items.Decision:
        """Return the matching of least expected loss, and that loss.

        "hamming" counts items with a wrong label; "footrule" sums how far labels are displaced. See
        :func:`~permvi.posterior.decode`.
        """
        return items.decode(self._marginals, loss)

    def item_summaries(self, level: float = 0.95) -> list[Item]:
        """Return each item's best label, runner-up, entropy and credible set at ``level``."""
        return items.summarise_items(self._marginals, self.labels, level)

    def most_uncertain(self, k: int = 10) -> list[Item]:
        """Return the k items of largest entropy."""
        largest = np.argsort(-self.entropy.ravel(), kind="stable")[: whole("k", k)]
        return items.summarise_items(self._marginals, self.labels, 0.95, largest)

    def check(self, model: Any, seed: int = 0) -> predictive.ModelCheck:
        """Test whether the model fits its data, given draws of this posterior.

        The verdict of the diagnostics speaks of the computation. This one speaks of the model:
        "fits", "does not fit" or "no check", with reasons in words. The level of all tests together
        is 2.5 %. The result is kept as ``model_check``, and is saved and reported with the
        posterior.

        Args:
            model: The model that was fitted.
            seed: Seed of the draws.
        """
        found = predictive.check(self, model, seed)
        object.__setattr__(self, "model_check", found)
        return found

    def __getitem__(self, pair: tuple[Any, Any]) -> joint.Probability:
        """Return P(item is label), as in ``posterior["r1", "Anna"]``; see `probability`."""
        if not (isinstance(pair, tuple) and len(pair) == 2):
            raise TypeError(f"posterior[item, label] takes a pair, got {pair!r:.60}.")
        return self.probability({pair[0]: pair[1]})

    def to_frame(self, level: float = 0.95, *, by: export.By = "items") -> "pd.DataFrame":
        """Return a pandas frame, by "items" or by "pairs".

        By items it has a row per item, see :class:`~permvi.posterior.Item`, and ``one_to_one``: the
        labels of the matching with the most items right on average. By pairs it has a row for each
        item and each label that it may have, most probable first.
        """
        if one_of("by", by, get_args(export.By)) == "items":
            columns = items.item_columns(self._marginals, self.labels, level)
            columns = items.with_one_to_one(columns, self._marginals, self.labels)
        else:
            columns = items.pair_columns(self._marginals, self.labels)
        return export.to_frame(columns, several=self.num_sites > 1)

    def to_xarray(self) -> "xr.Dataset":
        """Return the marginals with the names of items and labels as coordinates."""
        return export.to_xarray(self)

    def to_arviz(self, num: int | None = None, seed: int = 0) -> Any:
        """Return draws for ArviZ: ``InferenceData`` before ArviZ 1, else a ``DataTree``.

        Args:
            num: Number of draws; by default all that the posterior is made of, else 1000.
            seed: Seed of the draws.
        """
        return export.to_arviz(self, num, seed)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the posterior to one netCDF file; see :func:`permvi.posterior.load`."""
        from permvi.posterior import storage

        storage.save(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Posterior":
        """Read a posterior that ``save`` wrote."""
        from permvi.posterior import storage

        return storage.load(path)

    def plot(self, ax: Any = None) -> Any:
        """Plot the marginals as a heatmap; see :func:`permvi.plots.marginals`."""
        from permvi import plots

        return plots.marginals(self, ax=ax)

    def report(self, path: str | PathLike[str], *, title: str | None = None) -> Path:
        """Write a report as one HTML file; see :func:`permvi.report.write`."""
        from permvi import report

        return report.write(self, path, title=title)

    def __repr__(self) -> str:
        return export.text(self)

    def _repr_html_(self) -> str:
        return export.html(self)

    @property
    def _layout(self) -> Layout:
        return Layout.of("marginals", self.marginals.shape)

    @property
    def _marginals(self) -> Marginals:
        return Marginals(self.marginals, self.p_unmatched_rows, self.p_unmatched_cols)
