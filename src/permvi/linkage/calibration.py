r"""Fit temperature and offset of log odds to pairs that are known to be right or wrong.

Log odds of pairs become :math:`w' = w / T + b`. As in logistic regression, T and b maximise the log
score of the known pairs, :math:`\sum_e y_e \log p_e + (1 - y_e) \log(1 - p_e)`, but with the
probabilities :math:`p_e` under the rule of the linking. Pairs that compete already share what one
of them can have, so log odds that are right for each pair by itself are too low for all together.

A weak normal prior (standard deviation 1 of log T, 5 of b) keeps the fit finite if the known pairs
can be separated without error. Standard errors are robust to the dependence within components.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from permvi.linkage.columns import Columns
from permvi.linkage.graph import Graph, regrouped
from permvi.linkage.solve import is_easy, solve
from permvi.linkage.sources import Source, arrow, listed, open_source

_TRUTH = ("is_match", "match", "truth", "true_match", "known", "y", "correct",
          "clerical_match_score")  # fmt: skip
_WORDS = {"true": 1.0, "yes": 1.0, "1": 1.0, "1.0": 1.0,
          "false": 0.0, "no": 0.0, "0": 0.0, "0.0": 0.0}  # fmt: skip
_PRIOR_SD = np.array([1.0, 5.0])
_STEP = 1e-4
# Log odds below which pairs are left out of the fit, if a component is too entangled.
_CUTS = (-np.inf, -15.0, -12.0, -10.0, -8.0, -6.0, -4.0, -2.0, 0.0)
# Probabilities are kept this far from 0 and 1 in the log score.
_EDGE = 1e-12


@dataclasses.dataclass(frozen=True, eq=False)
class Calibration:
    """A fit of temperature and offset.

    Attributes:
        temperature: T, which divides the log odds.
        temperature_se: Its standard error.
        offset: b, which is added.
        offset_se: Its standard error.
        pairs: (K,) the known pairs that the fit has used, as places in the graph.
        right: (K,) whether each of them is a match.
        not_listed: The number of known pairs that are not candidates.
        expected_before: The expected number of matches among the known pairs before the fit.
        relative_sd: The standard deviation of the expected number of all matches that the errors of
            T and b cause, relative to that number; by the components with known pairs.
    """

    temperature: float
    temperature_se: float
    offset: float
    offset_se: float
    pairs: np.ndarray
    right: np.ndarray
    not_listed: int
    expected_before: float
    relative_sd: float

    def as_dict(self, p: np.ndarray, graph: Graph) -> dict[str, Any]:
        """Return the fit as JSON values, given the probabilities of all pairs."""
        known = p[self.pairs]
        return {
            "temperature": self.temperature,
            "temperature_se": self.temperature_se,
            "offset": self.offset,
            "offset_se": self.offset_se,
            "known_pairs": len(self.pairs),
            "known_components": len(np.unique(graph.labels[graph.tails[self.pairs]])),
            "known_pairs_not_listed": self.not_listed,
            "matches_observed": int(self.right.sum()),
            "matches_expected": float(known.sum()),
            "matches_expected_before": self.expected_before,
            "matches_expected_sd": float(np.sqrt((known * (1.0 - known)).sum())),
        }


def calibrate_weights(
    graph: Graph, rule: str, known: Any, columns: Columns, spool: Path, seed: int
) -> tuple[Graph, Calibration]:
    """Return the graph with calibrated weights, and the fit.

    Args:
        graph: The pairs.
        rule: The rule of the linking.
        known: A file or table of known pairs: the two columns of records, and one that is 1 (true,
            yes) or 0.
        columns: The columns of the pairs; those of known pairs may have the same names.
        spool: A folder for temporary files.
        seed: The seed of chains.

    Raises:
        ValueError: Columns are missing, a value is neither 0 nor 1, or known pairs are not of both
            kinds.
    """
    folder = spool / "known"
    folder.mkdir(exist_ok=True)
    source = open_source(known, folder)
    pairs, right, not_listed = _known_pairs(source, graph, columns)
    fit = _Fit(graph, rule, seed, pairs, right)
    values, covariance = fit.maximise()
    errors = np.sqrt(np.diag(covariance))
    slopes = fit.relative_slopes(values)
    temperature = float(np.exp(-values[0]))
    found = Calibration(
        temperature=temperature,
        temperature_se=temperature * float(errors[0]),
        offset=float(values[1]),
        offset_se=float(errors[1]),
        pairs=pairs[fit.used],
        right=fit.right,
        not_listed=not_listed,
        expected_before=float(fit.probabilities(np.zeros(2)).sum()),
        relative_sd=float(np.sqrt(slopes @ covariance @ slopes)),
    )
    weights = graph.weights / temperature + found.offset
    return dataclasses.replace(graph, weights=weights, own_weights=graph.weights), found


class _Fit:
    """The log score of known pairs as a function of (-log T, b).

    Chains would be too slow and too noisy for it. If a component needs them, the pairs with the
    lowest log odds are left out until none does, for this fit only. Since that depends on the
    scores and not on the truth, it does not bias the fit.
    """

    def __init__(
        self, graph: Graph, rule: str, seed: int, pairs: np.ndarray, right: np.ndarray
    ) -> None:
        # Only the components that have known pairs matter.
        with_known = np.zeros(graph.num_groups, bool)
        with_known[graph.labels[graph.tails[pairs]]] = True
        useful = with_known[graph.labels[graph.tails]]
        for cut in _CUTS:
            kept = np.flatnonzero(useful & (graph.weights >= cut))
            inside = regrouped(graph, kept)
            place = np.full(graph.num_pairs, -1)
            place[kept] = np.arange(len(kept))
            known = place[pairs] >= 0
            here = place[pairs[known]]
            of_known = inside.labels[inside.tails[here]]
            self.groups = np.unique(of_known)
            self.task = inside.task(self.groups, rule, seed)
            if is_easy(self.task):
                break
        else:
            raise ValueError(
                "calibrate needs components that can be solved exactly, got larger ones; leave out "
                "pairs with threshold."
            )
        # The place of each known pair in the task.
        starts = np.searchsorted(self.groups, of_known)
        place = np.empty(inside.num_pairs, np.int64)
        place[inside.order] = np.arange(inside.num_pairs)
        self.places = self.task.edge_ends[starts] + place[here] - inside.edge_ends[of_known]
        self.right, self.of_known, self.used = right[known], starts, known

    def probabilities(self, values: np.ndarray) -> np.ndarray:
        """Return (K,) probabilities of the known pairs under the rule."""
        return self._solved(values)[self.places]

    def _solved(self, values: np.ndarray) -> np.ndarray:
        """Return the probabilities of all pairs of the components with known pairs."""
        weights = self.task.weights * np.exp(values[0]) + values[1]
        return np.asarray(solve(self.task._replace(weights=weights)).p)

    def log_scores(self, values: np.ndarray) -> np.ndarray:
        """Return (K,) log scores of the known pairs."""
        p = np.clip(self.probabilities(values), _EDGE, 1.0 - _EDGE)
        return np.where(self.right, np.log(p), np.log1p(-p))

    def loss(self, values: np.ndarray) -> float:
        """Return the negative of the log score with the prior."""
        return float(-self.log_scores(values).sum() + 0.5 * ((values / _PRIOR_SD) ** 2).sum())

    def maximise(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the best values and their covariance."""
        from scipy.optimize import minimize

        simplex = np.array([[0.0, 0.0], [0.3, 0.0], [0.0, 1.0]])
        options = {"initial_simplex": simplex, "xatol": 1e-5, "fatol": 1e-7, "maxiter": 400}
        best = minimize(self.loss, np.zeros(2), method="Nelder-Mead", options=options).x
        steps = _STEP * np.eye(2)
        # Scores of components, which are independent of each other.
        slopes = np.stack(
            [
                np.bincount(
                    self.of_known,
                    (self.log_scores(best + step) - self.log_scores(best - step)) / (2 * _STEP),
                    len(self.groups),
                )
                for step in steps
            ]
        )
        h = 10.0 * steps
        curvature = np.empty((2, 2))
        for i in range(2):
            for j in range(2):
                corners = [
                    self.loss(best + a * h[i] + b * h[j]) * a * b for a in (1, -1) for b in (1, -1)
                ]
                curvature[i, j] = sum(corners) / (4 * h[i, i] * h[j, j])
        bread = np.linalg.pinv(curvature)
        meat = slopes @ slopes.T + np.diag(_PRIOR_SD**-2)
        return best, bread @ meat @ bread

    def relative_slopes(self, values: np.ndarray) -> np.ndarray:
        """Return (2,) derivatives of the log of the expected number of matches."""

        def log_matches(at: np.ndarray) -> float:
            return float(np.log(self._solved(at).sum()))

        steps = _STEP * np.eye(2)
        return np.array(
            [(log_matches(values + s) - log_matches(values - s)) / (2 * _STEP) for s in steps]
        )


def _known_pairs(
    source: Source, graph: Graph, columns: Columns
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return places of known pairs in the graph, whether each is right, and how many are not there.

    In a one-table graph a pair may be given in either order.
    """
    names = source.schema.names
    sides = (columns.left, columns.right)
    if not set(sides) <= set(names):
        if len(names) != 3:
            raise ValueError(
                f"{source.name}: expected the columns {columns.left!r} and {columns.right!r} of "
                f"the pairs, got {listed(names)}."
            )
        sides = (names[0], names[1])
    others = [name for name in names if name not in sides]
    truth = next((n for t in _TRUTH for n in others if n.lower() == t), None)
    if truth is None:
        if len(others) != 1:
            raise ValueError(
                f"{source.name}: expected a column such as 'is_match' that is 1 for matches and 0 "
                f"for others, got {listed(names)}."
            )
        truth = others[0]
    ids = (graph.left_ids, graph.left_ids if graph.right_ids is None else graph.right_ids)
    places = [_places(source.column(name), known) for name, known in zip(sides, ids, strict=True)]
    right = _truth(source, truth)
    if graph.right_ids is not None:
        places[1] = np.where(places[1] < 0, -1, places[1] + len(graph.left_ids))
    found = _pairs_at(graph, *places)
    listed_here = found >= 0
    pairs, first = np.unique(found[listed_here], return_index=True)
    right = right[listed_here]
    if len(pairs) < len(right):
        repeated = len(right) - len(pairs)
        raise ValueError(f"{source.name}: expected each known pair once, got {repeated} again.")
    right = right[first]
    if not len(pairs) or right.all() or not right.any():
        raise ValueError(
            f"{source.name}: expected known pairs of both kinds among the candidates, got "
            f"{int(right.sum())} matches and {int((~right).sum())} others."
        )
    return pairs, right, int(np.count_nonzero(~listed_here))


def _places(column: Any, ids: Any) -> np.ndarray:
    """Return the places of the ids of a column among all ids, -1 for others."""
    pa = arrow()
    try:
        values = column.cast(ids.type)
    except pa.ArrowException:
        values = column.cast(pa.string())
        ids = ids.cast(pa.string())
    found = pa.compute.index_in(values, value_set=ids).combine_chunks()
    return np.asarray(found.fill_null(-1).to_numpy(zero_copy_only=False)).astype(np.int64)


def _pairs_at(graph: Graph, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the places of pairs of records in the graph, -1 for those that are not listed."""
    num = len(graph.labels)

    def keys(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        low, high = np.minimum(a, b).astype(np.int64), np.maximum(a, b)
        return np.where(low < 0, -1, low * num + high)

    wanted, there = keys(left, right), keys(graph.tails, graph.heads)
    order = np.argsort(there)
    place = np.minimum(np.searchsorted(there, wanted, sorter=order), len(there) - 1)
    found = order[place]
    return np.where(there[found] == wanted, found, -1)


def _truth(source: Source, name: str) -> np.ndarray:
    """Return a column of ones and zeros as booleans."""
    values = [str(value).strip().lower() for value in source.column(name).to_pylist()]
    for row, value in enumerate(values):
        if value not in _WORDS:
            raise ValueError(
                f"{source.place(row)}: expected 1 or 0 in column {name!r}, got {value!r:.60}."
            )
    return np.array([_WORDS[value] > 0 for value in values], bool)
