"""The law of a fitted Plackett-Luce model: exact probabilities and exact draws."""

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
    """A Plackett-Luce model of the items that are not known.

    Args:
        log_worths: One for each row or each column of no known pair, in their order.
        items: "rows" (the columns of no known pair are places, in their order) or "columns" (the
            rows are).
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
        """Exact independent draws, by sorting noisy log worths."""
        noisy = self.log_worths + rng.gumbel(size=(num, len(self.log_worths)))
        return self._matchings(np.argsort(-noisy, axis=1)[:, : self._num_places])

    def log_prob(self, perms: np.ndarray) -> np.ndarray:
        """Exact log probabilities, -inf for what is impossible or breaks a known pair."""
        flat = perms.reshape(-1, perms.shape[-1])
        orders = self._orders(flat)
        # What is no ordering leads to other matchings, or to none.
        valid = (orders >= 0).all(axis=1) & (self._matchings(orders) == flat).all(axis=1)
        found = np.full(len(flat), -np.inf)
        found[valid] = self._log_probs(orders[valid])
        return found.reshape(perms.shape[:-1])

    def top(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k most probable, exactly: from the order of worths outwards.

        Two neighbours in the wrong order become more probable when they are swapped, and so does
        the last place when a better item that is not listed gets it. So every ordering but the best
        one has a more probable one a step away, and a best-first search meets them in order.
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
        """The parameters."""
        return {
            "log_worths": self.log_worths,
            "items": np.array(self.items),
            "known": self.known,
            "num_cols": np.array(self.num_cols),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """The law that ``to_arrays`` described."""
        return cls(
            arrays["log_worths"],
            str(arrays["items"]),
            known=arrays["known"],
            num_cols=int(arrays["num_cols"]),
        )

    def _log_probs(self, orders: np.ndarray) -> np.ndarray:
        """(num, k) orderings -> (num,), in float64."""
        num, k = orders.shape
        # Items that are not listed come last, in any order: only their sum matters.
        place = np.full((num, len(self.log_worths)), k)
        np.put_along_axis(place, orders, np.arange(k)[None], axis=1)
        values = self.log_worths[np.argsort(place, axis=1, kind="stable")]
        left = np.logaddexp.accumulate(values[:, ::-1], axis=1)[:, ::-1]
        return (values - left)[:, :k].sum(axis=1)

    def _matchings(self, orders: np.ndarray) -> np.ndarray:
        """(num, k) orderings of free items -> (num, n) matchings with the known pairs."""
        perms = np.tile(self.known, (len(orders), 1))
        if self.items == "columns":
            perms[:, self._rows] = self._cols[orders]
        else:
            perms[np.arange(len(orders))[:, None], self._rows[orders]] = self._cols
        return perms

    def _orders(self, perms: np.ndarray) -> np.ndarray:
        """(num, n) matchings -> (num, k) orderings of free items, -1 where there is no item."""
        # One more column, which -1 finds from behind.
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
        """Orderings with two neighbours swapped, or with another item in the last place."""
        k, found = self._num_places, []
        pairs = [(t, t + 1) for t in range(k - 1)] + [(k - 1, u) for u in range(k, len(order))]
        for t, u in pairs:
            other = list(order)
            other[t], other[u] = other[u], other[t]
            found.append(tuple(other))
        return found


_NUM_DRAWS = 2000
_ADVICE = "try method='sequential' or 'exact'"


def run(prepared: Prepared, context: Context) -> Posterior:
    """Fit one problem.

    Options are those of `TargetOptions`, and ``num_draws``: how many draws the marginals are taken
    from. ``diagnostics.extras`` has the log worths and the discrete ELBO. The bound on the evidence
    is not that but what the search behind the verdict has found, which is closer.
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
    """(n,) the columns of the pairs that were taken out, -1 for other rows."""
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
    ),
}
