"""The law of a fitted row-by-row family: its exact probabilities, and weighted draws."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from permvi._programmes import jit
from permvi.inference.discrete.family import Family, log_prob_many
from permvi.inference.discrete.structure import Structure
from permvi.posterior.laws import DrawsLaw, register_law
from permvi.problem.evaluation import filled
from permvi.problem.reduction import Reduction

_REDUCTION = ("settled", "row_place", "col_place", "free_rows", "free_cols")


@register_law
class FamilyLaw:
    """A fitted family, and draws of it that were weighted by the model's density.

    Draws and the most probable matchings come from the weighted draws, which are closer to the
    model. ``log_prob`` is the exact probability mass function of the family over all matchings.

    Args:
        family: The family, over the items and labels of no known pair.
        reduction: The known pairs, or None.
        draws: (num, n) or (num, sites, n) matchings, known pairs included.
        log_weights: (num,) log weights.
    """

    kind: ClassVar[str] = "family"

    def __init__(
        self,
        family: Family,
        reduction: Reduction | None,
        draws: ArrayLike,
        log_weights: ArrayLike | None,
    ) -> None:
        self._family, self._reduction = family, reduction
        self._draws = DrawsLaw(draws, log_weights)

    @property
    def family(self) -> Family:
        """The fitted family."""
        return self._family

    @property
    def draws(self) -> np.ndarray:
        """The draws, in the order they were given."""
        return self._draws.draws

    @property
    def weights(self) -> np.ndarray:
        """(num,) the normalised weights of the draws."""
        return self._draws.weights

    @property
    def entropy(self) -> None:
        """Unknown."""
        return

    def sample(self, num: int, rng: np.random.Generator) -> np.ndarray:
        """Resample the draws by their weights."""
        return self._draws.sample(num, rng)

    def log_prob(self, perms: np.ndarray) -> np.ndarray:
        """Return exact log probabilities under the fitted family, without the weights."""
        event = self._draws.draws.shape[1:]
        flat = perms.reshape(-1, *event)
        batch = perms.shape[: perms.ndim - len(event)]
        if len(flat) == 0:
            return np.zeros(batch)
        padded = filled(flat, 1 << (len(flat) - 1).bit_length())
        values = np.asarray(_log_probs(self._family, self._reduction, padded), np.float64)
        return values[: len(flat)].reshape(batch)

    def traced_log_prob(self, perms: jax.Array) -> jax.Array:
        """`log_prob` inside JAX transformations."""
        event = self._draws.draws.shape[1:]
        flat = perms.reshape(-1, *event)
        values = _log_probs(self._family, self._reduction, flat)
        return values.reshape(perms.shape[: perms.ndim - len(event)])

    def top(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the k matchings of largest weight, and their probabilities."""
        return self._draws.top(k)

    def weight(self, perm: np.ndarray) -> float:
        """Return the total weight of the draws that are equal to a matching."""
        return self._draws.weight(perm)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return parameters, structure, known pairs and draws by name."""
        family, structure = self._family, self._family.structure
        arrays: dict[str, Any] = {f"param_{name}": value for name, value in family.params.items()}
        arrays |= {
            "component_log_weights": family.log_weights,
            "orders": family.orders,
            "kind": family.kind,
            "num_rows_and_cols": structure.shape,
            "num_sites": structure.num_sites,
            "ground": int(structure.ground),
        }
        if structure.edges is not None:
            arrays |= {"edges": structure.edges, "start": structure.start}
        if self._reduction is not None:
            arrays |= {name: getattr(self._reduction, name) for name in _REDUCTION}
        return {name: np.asarray(value) for name, value in arrays.items()} | {
            f"drawn_{name}": value for name, value in self._draws.to_arrays().items()
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Return the law that ``to_arrays`` described."""
        n, m = arrays["num_rows_and_cols"].tolist()
        edges, start = arrays.get("edges"), arrays.get("start")
        structure = Structure(
            None if edges is None else edges.astype(bool),
            start,
            (n, m),
            int(arrays["num_sites"]),
            bool(arrays["ground"]),
        )
        family = Family(
            {
                name.removeprefix("param_"): jnp.asarray(value)
                for name, value in arrays.items()
                if name.startswith("param_")
            },
            jnp.asarray(arrays["component_log_weights"]),
            jnp.asarray(arrays["orders"]),
            structure,
            str(arrays["kind"]),
        )
        known = "settled" in arrays
        reduction = Reduction(*(arrays[name] for name in _REDUCTION)) if known else None
        return cls(family, reduction, arrays["drawn_draws"], arrays.get("drawn_log_weights"))


@jit
def _log_probs(family: Family, reduction: Reduction | None, perms: jax.Array) -> jax.Array:
    """Return (num,) log probabilities of matchings that include the known pairs."""
    structure = family.structure
    possible = jnp.ones(len(perms), bool)
    if reduction is not None:
        perms, consistent = reduction.reduce(perms)
        possible = consistent if structure.num_sites == 1 else consistent.all(axis=-1)
    choices = perms.reshape(len(perms), structure.num_sites, structure.shape[0])
    if not structure.ground:
        possible &= (choices >= 0).all(axis=(1, 2))
    found = log_prob_many(family, jnp.where(choices < 0, structure.num_choices - 1, choices))
    return jnp.where(possible, found, -jnp.inf)
