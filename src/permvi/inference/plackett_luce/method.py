"""Method "plackett_luce": a Plackett-Luce model with exact probabilities and exact draws."""

import dataclasses
import heapq
from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from permvi._checks import one_of, whole
from permvi.inference.method import Context, Method, MethodInfo
from permvi.inference.plackett_luce.target import TargetOptions, fit_target
from permvi.inference.verdict.audit import audited_draws
from permvi.posterior import Posterior
from permvi.posterior.laws import register_law
from permvi.problem.evaluation import evaluator
from permvi.problem.prepare import Prepared


@register_law
class PlackettLuceLaw:
    """A Plackett-Luce model of the rows and columns of no known pair.

    Args:
        log_worths: One for each row or each column, in their order.
        items: "rows" (columns are places, in their order) or "columns" (rows are).
        known: (n,) known columns, -1 where unknown.
        num_cols: m.
    """

    kind: ClassVar[str] = "plackett_luce"

    def __init__(
        self, log_worths: ArrayLike, items: str, *, known: ArrayLike, num_cols: int
    ) -> None:
        self.log_worths = np.array(log_worths, dtype=np.float64)
        self.items = one_of("items", items, ("rows", "columns"))
        self.known = np.array(known, dtype=np.int64)
        self.num_cols = int(num_cols)
        self._rows = np.flatnonzero(self.known < 0)
        self._cols = np.setdiff1d(np.arange(self.num_cols), self.known)
        self._num_places = len(self._cols if self.items == "rows" else self._rows)

    @property
    def entropy(self) -> None:
        """Unknown: it has no closed form."""
        return

    def sample(self, num: int, rng: np.random.Generator) -> np.ndarray:
        """Draw independently and exactly, by sorting noisy log worths."""
        noisy = self.log_worths + rng.gumbel(size=(num, len(self.log_worths)))
        return self._matchings(np.argsort(-noisy, axis=1)[:, : self._num_places])

    def log_prob(self, perms: np.ndarray) -> np.ndarray:
        """Return exact log probabilities, -inf for impossible matchings."""
        flat = perms.reshape(-1, perms.shape[-1])
        orders = self._orders(flat)
        # What is not an ordering leads to another matching, or to none.
        valid = (orders >= 0).all(axis=1) & (self._matchings(orders) == flat).all(axis=1)
        found = np.full(len(flat), -np.inf)
        found[valid] = self._log_probs(orders[valid])
        return found.reshape(perms.shape[:-1])

    def top(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the k most probable matchings, exactly, with their probabilities.

        An ordering becomes more probable if two neighbours in the wrong order are swapped, or if a
        better item that is not listed takes the last place. So every ordering but the best has a
        more probable one a step away, and a best-first search meets them in order.
        """
        best = np.argsort(-self.log_worths, kind="stable")
        start = tuple(best.tolist())
        heap, seen = [(0.0, start)], {self._listed(start)}
        found: list[tuple[int, ...]] = []
        while heap and len(found) < k:
            _, order = heapq.heappop(heap)
            found.append(self._listed(order))
            new = [o for o in self._around(order) if self._listed(o) not in seen]
            seen.update(map(self._listed, new))
            if new:
                values = self._log_probs(np.array([self._listed(o) for o in new]))
                for other, value in zip(new, values.tolist(), strict=True):
                    heapq.heappush(heap, (-value, other))
        orders = np.array(found)
        return self._matchings(orders), np.exp(self._log_probs(orders))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the parameters by name."""
        return {
            "log_worths": self.log_worths,
            "items": np.array(self.items),
            "known": self.known,
            "num_cols": np.array(self.num_cols),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Return the law that ``to_arrays`` described."""
        return cls(
            arrays["log_worths"],
            str(arrays["items"]),
            known=arrays["known"],
            num_cols=int(arrays["num_cols"]),
        )

    def _log_probs(self, orders: np.ndarray) -> np.ndarray:
        """Return log probabilities (num,) of orderings (num, k), in float64."""
        num, k = orders.shape
        # Only the sum over the items that are not listed matters.
        place = np.full((num, len(self.log_worths)), k)
        np.put_along_axis(place, orders, np.arange(k)[None], axis=1)
        values = self.log_worths[np.argsort(place, axis=1, kind="stable")]
        left = np.logaddexp.accumulate(values[:, ::-1], axis=1)[:, ::-1]
        return (values - left)[:, :k].sum(axis=1)

    def _matchings(self, orders: np.ndarray) -> np.ndarray:
        """Return the matchings (num, n), with the known pairs, of orderings (num, k)."""
        perms = np.tile(self.known, (len(orders), 1))
        if self.items == "columns":
            perms[:, self._rows] = self._cols[orders]
        else:
            perms[np.arange(len(orders))[:, None], self._rows[orders]] = self._cols
        return perms

    def _orders(self, perms: np.ndarray) -> np.ndarray:
        """Return the orderings (num, k) of matchings (num, n), -1 where there is no item."""
        # -1 indexes one more column at the end.
        if self.items == "columns":
            item = np.full(self.num_cols + 1, -1)
            item[self._cols] = np.arange(len(self._cols))
            return item[perms[:, self._rows]]
        holder = np.full((len(perms), self.num_cols + 1), -1)
        np.put_along_axis(
            holder, perms[:, self._rows] % (self.num_cols + 1), np.arange(len(self._rows))[None], 1
        )
        return holder[:, self._cols]

    def _listed(self, order: tuple[int, ...]) -> tuple[int, ...]:
        return order[: self._num_places]

    def _around(self, order: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return orderings with two neighbours swapped, or another item in the last place."""
        k, found = self._num_places, []
        pairs = [(t, t + 1) for t in range(k - 1)] + [(k - 1, u) for u in range(k, len(order))]
        for t, u in pairs:
            other = list(order)
            other[t], other[u] = other[u], other[t]
            found.append(tuple(other))
        return found


_NUM_DRAWS = 2000
_ADVICE = "try method='auto' or 'sequential'"


def run(prepared: Prepared, context: Context) -> Posterior:
    """Fit one problem.

    Options are those of `TargetOptions`, and ``num_draws``, the draws that give the marginals.
    ``diagnostics.extras`` has the log worths and the discrete ELBO. The bound on the evidence comes
    from the search behind the verdict, which is closer.
    """
    options = dict(context.options)
    num_draws = whole("num_draws", options.pop("num_draws", _NUM_DRAWS))
    problem = prepared.problem
    fitted = fit_target(
        problem,
        context.rng_key,
        TargetOptions(**options),
        None if problem.traceable else evaluator(problem),
        context.step,
    )
    law, inner = (
        PlackettLuceLaw(fitted.log_worths, fitted.items, known=known, num_cols=num_cols)
        for known, num_cols in (
            (_known(prepared), prepared.model.shape[1]),
            (np.full(problem.shape[0], -1), problem.shape[1]),
        )
    )
    reduced = inner.sample(num_draws, np.random.default_rng(context.seed))
    extras = {"log_worths": fitted.log_worths, "elbo": np.array(fitted.elbo)}
    posterior = Posterior.from_draws(
        prepared.restore(reduced),
        shape=prepared.model.shape,
        num_evaluations=fitted.num_evaluations,
    )
    signals = {"extras": extras, "elbo_trace": fitted.elbo_trace}
    posterior = audited_draws(prepared, posterior, reduced, _ADVICE, signals)
    return dataclasses.replace(posterior, law=law)


def _known(prepared: Prepared) -> np.ndarray:
    """Return the columns (n,) of known pairs, -1 for other rows."""
    nothing = np.full(prepared.model.shape[0], -1)
    return nothing if prepared.reduction is None else np.asarray(prepared.reduction.settled)


METHODS = {
    "plackett_luce": Method(
        MethodInfo(
            name="plackett_luce",
            needs="any density on permutations that is positive everywhere",
            gives="draws and exact probabilities of a Plackett-Luce model",
            masks=False,
            partial=False,
            cost="O(n log n) per draw; 25,600 evaluations",
            reference="Luce 1959; Plackett 1975",
        ),
        options=(*(field.name for field in dataclasses.fields(TargetOptions)), "num_draws"),
        run=run,
        sites=False,
    )
}
