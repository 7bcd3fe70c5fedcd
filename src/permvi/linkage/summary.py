r"""What a linking is worth, without any labels: expected matches, precision, recall and F1.

If the probabilities :math:`p_e` are calibrated, linking the pairs of a set S is expected to be
right for :math:`\sum_{e \in S} p_e` of them, out of :math:`\sum_e p_e` matches of the candidates:

.. math:: \text{precision} = \frac{\sum_S p_e}{|S|}, \quad
          \text{recall} = \frac{\sum_S p_e}{\sum p_e}, \quad
          F_1 = \frac{2 \sum_S p_e}{|S| + \sum p_e}.

Matches that are not among the candidate pairs are not known of, and not counted.
"""

from typing import Any, NamedTuple

import numpy as np

from permvi.linkage.columns import own_probability
from permvi.linkage.graph import Graph
from permvi.linkage.solve import VERDICTS, Answer

# Half the width of a 95 % interval of a normal distribution.
_Z95 = 1.959964
_NUM_THRESHOLDS = 100
# Groups of more records than this are named, with the pairs that hold them together.
HUGE = 500
_MOST_HUGE = 10
_MOST_GLUE = 5
# A pair glues if it joins two parts of at least this share of the group.
_GLUED_SHARE = 0.05


class Thresholds(NamedTuple):
    """Expected quality of linking all pairs whose probability is at least a threshold.

    Attributes:
        threshold: (T,) from 0 to 1.
        num_links: (T,) the number of pairs.
        precision: (T,) NaN where there are no pairs.
        recall: (T,)
        f1: (T,)
    """

    threshold: np.ndarray
    num_links: np.ndarray
    precision: np.ndarray
    recall: np.ndarray
    f1: np.ndarray


def expected_quality(p: np.ndarray) -> tuple[Thresholds, dict[str, float]]:
    """Return the expected quality at each percent, and at the threshold of the largest F1."""
    total = float(p.sum())

    def quality(count: Any, right: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        with np.errstate(invalid="ignore", divide="ignore"):
            precision, recall = np.divide(right, count), np.divide(right, total)
            f1 = 2.0 * right / (count + total)
        return precision, np.nan_to_num(recall), np.nan_to_num(f1)

    thresholds = np.arange(_NUM_THRESHOLDS + 1) / _NUM_THRESHOLDS
    # Imported here because it loads numba.
    from permvi.linkage.graph_kernels import histogram

    counts, right = (sums[::-1].cumsum()[::-1] for sums in histogram(p, thresholds))
    # A pair raises F1 if its probability is above F1 / 2: link those, and repeat (Dinkelbach 1967).
    highest, f1 = -1.0, 0.0
    while f1 > highest:
        highest = f1
        chosen = p >= 0.5 * highest
        best = int(np.count_nonzero(chosen)), float(p.sum(where=chosen))
        f1 = 2.0 * best[1] / (best[0] + total)
    names = ("precision", "recall", "f1")
    suggested = {
        "threshold": float(p[chosen].min()),
        "links": best[0],
        **{name: float(value) for name, value in zip(names, quality(*best), strict=True)},
    }
    return Thresholds(thresholds, counts, *quality(counts, right)), suggested


def interval(expected: float, variance: float, most: int) -> list[int]:
    """Return whole numbers that enclose the number of matches with a probability of 95 %."""
    half = _Z95 * np.sqrt(variance)
    low, high = np.floor(expected - half + 1e-9), np.ceil(expected + half - 1e-9)
    return [int(max(low, 0)), int(min(high, most))]


class GroupSums(NamedTuple):
    """Sums over the pairs of each group.

    Attributes:
        expected: (C,) the expected number of matches.
        wrong: (C,) the expected number of wrong decisions of the best linking.
    """

    expected: np.ndarray
    wrong: np.ndarray


def by_group(graph: Graph, found: Answer) -> GroupSums:
    """Return what is expected of each group."""
    # Imported here because it loads numba.
    from permvi.linkage.graph_kernels import sum_by_group

    arrays = graph.tails, graph.labels, found.p, found.best
    return GroupSums(*sum_by_group(*arrays, graph.num_groups))


def p_unmatched(graph: Graph, rule: str, p: np.ndarray) -> np.ndarray:
    """Return (V,) probabilities that records have no match.

    The matches of a record that may have several are independent of each other.
    """
    num = len(graph.labels)
    free_side = {"one-to-many": graph.tails, "many-to-one": graph.heads}.get(rule)
    sums = [np.bincount(ends, p, num) for ends in (graph.tails, graph.heads)]
    found = 1.0 - sums[0] - sums[1]
    if free_side is not None:
        with np.errstate(divide="ignore"):
            none = np.exp(np.bincount(free_side, np.log1p(-np.minimum(p, 1.0)), num))
        several = np.zeros(num, bool)
        several[free_side] = True
        found = np.where(several, none, found)
    return np.clip(found, 0.0, 1.0)


def glue(graph: Graph, group: int) -> list[dict[str, Any]]:
    """Return the pairs that hold a group together, those that join the largest parts first.

    Pairs are added from the strongest to the weakest. One that joins two large parts glues them:
    without it and all weaker pairs the group falls apart there.
    """
    pairs = graph.order[graph.edge_ends[group] : graph.edge_ends[group + 1]]
    pairs = pairs[np.argsort(-graph.weights[pairs], kind="stable")]
    parents = {int(v): int(v) for v in np.unique([graph.tails[pairs], graph.heads[pairs]])}
    size = dict.fromkeys(parents, 1)

    def root(v: int) -> int:
        while parents[v] != v:
            parents[v] = parents[parents[v]]
            v = parents[v]
        return v

    found = []
    for pair in pairs.tolist():
        a, b = root(int(graph.tails[pair])), root(int(graph.heads[pair]))
        if a == b:
            continue
        smaller = min(size[a], size[b])
        if smaller >= _GLUED_SHARE * graph.sizes[group]:
            found.append((smaller, pair, (size[a], size[b])))
        parents[b] = a
        size[a] += size[b]
    found.sort(key=lambda entry: -entry[0])
    return [
        {
            "left": graph.id_of(int(graph.tails[pair])),
            "right": graph.id_of(int(graph.heads[pair])),
            "p_pair": float(own_probability(graph.own_weights[pair])),
            "joins": list(map(int, joined)),
        }
        for _, pair, joined in found[:_MOST_GLUE]
    ]


def summarise(
    graph: Graph, rule: str, found: Answer, relative_sd: float = 0.0
) -> tuple[dict[str, Any], Thresholds]:
    """Return the summary of a linking as JSON values, and the table of thresholds.

    ``relative_sd`` is the relative error of the expected matches due to calibration.
    """
    own = own_probability(graph.own_weights)
    expected = float(found.p.sum())
    thresholds, suggested = expected_quality(found.p)
    num_left = len(graph.left_ids)
    records = {"records": num_left}
    if graph.right_ids is not None:
        records = {"left_records": num_left, "right_records": len(graph.right_ids)}
    links = np.count_nonzero(found.best)
    huge = np.argsort(-graph.sizes, kind="stable")[:_MOST_HUGE]
    huge = huge[graph.sizes[huge] > HUGE]
    worst = found.verdict[np.diff(graph.edge_ends) > 0].max(initial=0)
    return {
        "rule": rule,
        "pairs": graph.num_pairs,
        **records,
        "components": graph.num_groups,
        "largest_component": int(graph.sizes.max()),
        "solved_exactly": int(np.count_nonzero(found.exact)),
        "verdicts": {
            name: int(np.count_nonzero(found.verdict == k)) for k, name in enumerate(VERDICTS)
        },
        "verdict": VERDICTS[int(worst)],
        "expected_matches": expected,
        "expected_matches_interval": interval(
            expected,
            float(found.variance.sum()) + (relative_sd * expected) ** 2,
            graph.num_pairs,
        ),
        "expected_matches_pairwise": float(own.sum()),
        "best_linking": {
            "links": int(links),
            "expected_right": float(found.p[found.best].sum()),
            "precision": float(found.p[found.best].mean()) if links else None,
            "recall": float(found.p[found.best].sum() / expected) if expected else None,
        },
        "suggested": suggested,
        "huge_components": [
            {
                "component": int(group),
                "records": int(graph.sizes[group]),
                "pairs": int(graph.edge_ends[group + 1] - graph.edge_ends[group]),
                "verdict": VERDICTS[int(found.verdict[group])],
                "glue": glue(graph, int(group)),
            }
            for group in huge
        ],
    }, thresholds
