"""Write a linking as tables: pairs, records, components, thresholds and what to review."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from permvi import _threads
from permvi._files import write_text
from permvi.linkage.columns import Columns, own_probability
from permvi.linkage.graph import Graph
from permvi.linkage.solve import MANY_TO_ONE, ONE_TO_MANY, VERDICTS, Answer
from permvi.linkage.sources import PART_ROWS, Source, arrow, write_table
from permvi.linkage.summary import GroupSums, Thresholds, p_unmatched

# The most components to list for a clerical look, and the least expected number of wrong decisions.
_MOST_REVIEWED = 1000
_LEAST_WRONG = 0.02
ADDED = ("p_pair", "p_link", "best_link", "component", "verdict")


def added_names(names: list[str]) -> list[str]:
    """Return the names of the columns that pairs get, which differ from those that they have."""
    return [name if name not in names else f"permvi_{name}" for name in ADDED]


def write_pairs(folder: Path, source: Source, graph: Graph, found: Answer) -> None:
    """Write the rows of the source with their probabilities, in the same order and types."""
    pa = arrow()
    names = added_names(source.schema.names)
    place = row = 0

    def write(number: int, table: Any, pairs: slice) -> None:
        groups = graph.labels[graph.tails[pairs]]
        columns = (
            own_probability(graph.own_weights[pairs]),
            found.p[pairs],
            found.best[pairs],
            groups,
            _verdicts(found.verdict[groups]),
        )
        for name, values in zip(names, columns, strict=True):
            table = table.append_column(name, pa.array(values))
        write_table(folder / f"part-{number:05d}.parquet", table)

    with _threads.pool(2) as threads:
        waiting: list[Any] = []
        for number, part in enumerate(source.parts()):
            table = part
            if graph.kept is not None:
                kept = graph.kept[row : row + len(part)]
                table = part.filter(pa.array(kept))
            row += len(part)
            pairs = slice(place, place + len(table))
            place += len(table)
            waiting.append(threads.submit(write, number, table, pairs))
            # No more than two parts in memory beside the one that is read.
            if len(waiting) > 2:
                waiting.pop(0).result()
        for job in waiting:
            job.result()


def _verdicts(codes: np.ndarray) -> Any:
    pa = arrow()
    return pa.array(np.array(VERDICTS, dtype=object)).take(pa.array(codes.astype(np.int32)))


def write_records(folder: Path, columns: Columns, graph: Graph, rule: str, found: Answer) -> None:
    """Write what is known of each record: one folder for each side, or one for one table."""
    pa = arrow()
    alone = p_unmatched(graph, rule, found.p)
    num_left = len(graph.left_ids)
    partner, p_best = _partners(graph, rule, found)
    sides = [("left", columns.left, 0, graph.left_ids)]
    if graph.right_ids is None:
        sides = [("records", columns.left, 0, graph.left_ids)]
    else:
        sides.append(("right", columns.right, num_left, graph.right_ids))
    for side, name, first, ids in sides:
        target = folder / side
        target.mkdir(parents=True, exist_ok=True)
        others, shift = (graph.right_ids, num_left) if side == "left" else (graph.left_ids, 0)
        for number, start in enumerate(range(0, len(ids), PART_ROWS)):
            part = ids.slice(start, PART_ROWS)
            chosen = slice(first + start, first + start + len(part))
            mates = partner[chosen]
            table = pa.table(
                {
                    name: part,
                    "p_unmatched": alone[chosen],
                    "best_match": others.take(
                        pa.array(np.maximum(mates - shift, 0), mask=mates < 0)
                    ),
                    "p_best_match": pa.array(p_best[chosen], mask=mates < 0),
                    "component": graph.labels[chosen],
                    "verdict": _verdicts(found.verdict[graph.labels[chosen]]),
                }
            )
            write_table(target / f"part-{number:05d}.parquet", table)


def _partners(graph: Graph, rule: str, found: Answer) -> tuple[np.ndarray, np.ndarray]:
    """Return (V,) the partner of each record in the best linking, -1 for none, and its probability.

    Of several partners, the one with the largest probability.
    """
    partner, p_best = np.full(len(graph.labels), -1), np.zeros(len(graph.labels))
    links = np.flatnonzero(found.best)
    if rule in (ONE_TO_MANY, MANY_TO_ONE):
        links = links[np.argsort(found.p[links], kind="stable")]
    for ends, others in ((graph.tails, graph.heads), (graph.heads, graph.tails)):
        partner[ends[links]] = others[links]
        p_best[ends[links]] = found.p[links]
    return partner, p_best


def write_components(folder: Path, graph: Graph, found: Answer, sums: GroupSums) -> None:
    """Write a row for each component."""
    pa = arrow()
    counts = np.diff(graph.edge_ends)
    for number, start in enumerate(range(0, graph.num_groups, PART_ROWS)):
        part = slice(start, start + PART_ROWS)
        table = pa.table(
            {
                "component": np.arange(graph.num_groups, dtype=np.int32)[part],
                "records": graph.sizes[part],
                "pairs": counts[part],
                "expected_matches": sums.expected[part],
                "sd_matches": np.sqrt(found.variance[part]),
                "expected_wrong": sums.wrong[part],
                "log_evidence": found.log_evidence[part],
                "exact": found.exact[part],
                "expected_error": found.error[part],
                "verdict": _verdicts(found.verdict[part]),
            }
        )
        write_table(folder / f"part-{number:05d}.parquet", table)


def write_thresholds(path: Path, thresholds: Thresholds) -> Path:
    """Write the expected quality at each threshold as CSV."""
    rows = zip(*thresholds, strict=True)
    lines = [",".join(Thresholds._fields)]
    for threshold, links, *quality in rows:
        cells = ("" if np.isnan(value) else f"{value:.6f}" for value in quality)
        lines.append(",".join([f"{threshold:.2f}", str(links), *cells]))
    return write_text(path, "\n".join(lines) + "\n")


def reviews(graph: Graph, found: Answer, wrong: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yield the components worth a clerical look, most informative first.

    They are ordered by ``wrong`` (C,), the expected number of wrong decisions of the best linking.
    The pair to ask about first is the one whose answer says most: it has the largest entropy.
    """
    order = np.argsort(-wrong, kind="stable")[:_MOST_REVIEWED]
    for group in order[wrong[order] >= _LEAST_WRONG].tolist():
        pairs = graph.order[graph.edge_ends[group] : graph.edge_ends[group + 1]]
        ask = int(pairs[np.argmin(np.abs(found.p[pairs] - 0.5))])
        yield {
            "component": group,
            "records": int(graph.sizes[group]),
            "pairs": len(pairs),
            "expected_wrong": float(wrong[group]),
            "ask_left": graph.id_of(int(graph.tails[ask])),
            "ask_right": graph.id_of(int(graph.heads[ask])),
            "p_pair": float(own_probability(graph.own_weights[ask])),
            "p_link": float(found.p[ask]),
            "in_best_linking": bool(found.best[ask]),
            "verdict": VERDICTS[int(found.verdict[group])],
        }


def write_reviews(path: Path, graph: Graph, found: Answer, wrong: np.ndarray) -> Path:
    """Write the components worth a look as CSV."""
    text = io.StringIO()
    names = ("component", "records", "pairs", "expected_wrong", "ask_left", "ask_right", "p_pair",
             "p_link", "in_best_linking", "verdict")  # fmt: skip
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for row in reviews(graph, found, wrong):
        writer.writerow({k: f"{v:.6f}" if isinstance(v, float) else v for k, v in row.items()})
    return write_text(path, text.getvalue())
