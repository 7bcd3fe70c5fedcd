"""Number the records of candidate pairs, split them into independent groups, pack into tasks."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from permvi import _threads
from permvi.linkage.columns import Columns, own_probability
from permvi.linkage.solve import DEDUPE, Task
from permvi.linkage.sources import Source, arrow

# Pairs that go through the union-find structure at once.
_CHUNK = 2**20
# The cost of tasks, in units of a quarter of a pair of a small group: at least, in parts of the
# whole, and at most, so that a task has a few megabytes.
_LEAST_COST = 200_000
_NUM_TASKS = 96
_MOST_COST = 1_000_000
# Groups of more records than this go to chains; a pair of theirs costs this much.
_LARGE = 60
_LARGE_COST = 2_000


@dataclasses.dataclass(frozen=True, eq=False)
class Graph:
    """Candidate pairs between numbered records.

    Attributes:
        left_ids: Arrow array of the left records' ids, in the order of their first pair.
        right_ids: Those of the right records; None for one table.
        tails: (E,) the left record of each pair.
        heads: (E,) the right record of each pair; right records are numbered after the left ones.
        weights: (E,) natural log odds of the pairs, calibrated if they are.
        own_weights: (E,) those of the source.
        kept: (rows,) which rows of the source are pairs, or None for all.
        labels: (V,) the group of each record; groups are numbered by their first record.
        ranks: (V,) the place of each record in its group.
        sizes: (C,) the number of records of each group.
        num_left: (C,) the number of left records of each group.
        order: (E,) the pairs by group.
        edge_ends: (C+1,) where the pairs of each group begin in ``order``.
    """

    left_ids: Any
    right_ids: Any
    tails: np.ndarray
    heads: np.ndarray
    weights: np.ndarray
    own_weights: np.ndarray
    kept: np.ndarray | None
    labels: np.ndarray
    ranks: np.ndarray
    sizes: np.ndarray
    num_left: np.ndarray
    order: np.ndarray
    edge_ends: np.ndarray

    @property
    def num_pairs(self) -> int:
        """The number of pairs."""
        return len(self.tails)

    @property
    def num_groups(self) -> int:
        """The number of groups."""
        return len(self.sizes)

    def id_of(self, record: int) -> Any:
        """Return the id of a record."""
        if record < len(self.left_ids):
            return self.left_ids[record].as_py()
        return self.right_ids[record - len(self.left_ids)].as_py()

    def fingerprint(self, *settings: Any) -> str:
        """Return a hash of the pairs, their weights and some settings."""
        found = hashlib.blake2b(repr(settings).encode(), digest_size=16)
        for array in (self.tails, self.heads, self.weights):
            found.update(np.ascontiguousarray(array).data)
        for ids in (self.left_ids, self.right_ids):
            for buffer in ids.buffers() if ids is not None else ():
                if buffer is not None:
                    found.update(buffer)
        return found.hexdigest()

    def tasks(self, rule: str, seed: int) -> Iterator[Task]:
        """Yield tasks of about the same cost, each of them a run of groups; the costliest first.

        They depend on the pairs alone, and not on who solves them. A costly one at the end would
        leave all but one of those who solve them without work.
        """
        ends, costs = self._task_ends(rule)
        for number in np.argsort(-costs, kind="stable").tolist():
            yield self.task(np.arange(ends[number], ends[number + 1]), rule, seed, number)

    def task(self, groups: np.ndarray, rule: str, seed: int, number: int = 0) -> Task:
        """Return the task of some groups, in the given order."""
        counts = np.diff(self.edge_ends)[groups]
        ends = np.concatenate([[0], np.cumsum(counts)])
        places = np.repeat(self.edge_ends[groups] - ends[:-1], counts) + np.arange(ends[-1])
        pairs = self.order[places]
        # Small numbers, since tasks travel.
        small = np.min_scalar_type(int(self.sizes[groups].max()))
        return Task(
            number,
            rule,
            groups,
            ends,
            self.num_left[groups],
            self.sizes[groups],
            self.ranks[self.tails[pairs]].astype(small),
            self.ranks[self.heads[pairs]].astype(small),
            self.weights[pairs],
            seed,
        )

    def _task_ends(self, rule: str) -> tuple[np.ndarray, np.ndarray]:
        """Return where the T tasks begin in the list of groups and its end, (T+1,); costs, (T,)."""
        counts = np.diff(self.edge_ends).astype(np.float64)
        cost = counts.copy()
        if rule in ("one-to-one", DEDUPE):
            large = self.sizes > _LARGE
            # Sums over frontiers grow with the size, until chains take over.
            cost *= 4.0 + np.minimum(self.sizes, _LARGE) ** 3 / 3000.0
            cost[large] = 100_000 + _LARGE_COST * counts[large]
        total = np.cumsum(cost)
        share = min(max(float(total[-1]) / _NUM_TASKS, _LEAST_COST), _MOST_COST)
        numbers = np.floor((total - 0.5 * cost) / share).astype(np.int64)
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        return np.append(starts, len(cost)), np.add.reduceat(cost, starts)


def build_graph(
    source: Source,
    columns: Columns,
    read_weights: Callable[[], np.ndarray],
    *,
    rule: str,
    threshold: float | None = None,
    separate_ids: bool = False,
) -> tuple[Graph, list[str]]:
    """Read the ids of all pairs and split them into groups; also return notes.

    Args:
        source: The table.
        columns: Its columns.
        read_weights: Returns (rows,) natural log odds of its rows. Called while ids are read.
        rule: One of `solve.RULES`.
        threshold: Rows whose own probability is below this are left out.
        separate_ids: Whether equal ids on both sides are different records.

    Raises:
        ValueError: There are no pairs, an id is missing, a record is on both sides, or a pair is
            listed twice.
    """
    notes: list[str] = []
    kept = None
    # Arrow works without the interpreter's lock, so both sides are read at once.
    with _threads.pool(2) as threads:
        sides = [threads.submit(_ids, source, columns, side) for side in (0, 1)]
        # First, so that of several errors this one is raised.
        weights = read_weights()
        # Splitting a single pair loads the compiled functions, which takes its time.
        _grouped(["a"], ["b"], np.zeros(1, np.int32), np.ones(1, np.int32), np.zeros(1), None)
        left, right = (side.result() for side in sides)
    if threshold is not None:
        kept = own_probability(weights) >= threshold
        left_out = len(kept) - np.count_nonzero(kept)
        notes.append(f"{left_out} of {len(kept)} pairs are below the threshold and left out")
        weights = weights[kept]
    if not len(weights):
        above = "" if kept is None else " above the threshold"
        raise ValueError(f"{source.name}: expected at least one pair{above}, got none.")
    if kept is not None:
        left, right = (ids.filter(arrow().array(kept)) for ids in (left, right))
    one_table = rule == DEDUPE
    left, right, joined = _with_datasets(source, columns, left, right, kept)
    if joined:
        notes.append(joined)
    separate = separate_ids or (columns.datasets is not None and not joined and not one_table)
    if one_table:
        left_ids, tails, heads = _encode_together(source, left, right)
        right_ids = None
    else:
        with _threads.pool(2) as threads:
            (left_ids, tails), (right_ids, heads) = tuple(threads.map(_encode, (left, right)))
        if separate:
            notes.append("equal ids on both sides are different records")
        heads += len(left_ids)
    del left, right
    with _threads.pool(2) as threads:
        grouped = threads.submit(_grouped, left_ids, right_ids, tails, heads, weights, kept)
        once = threads.submit(_check_duplicates, source, left_ids, right_ids, tails, heads)
        if one_table:
            _check_ends(source, left_ids, tails, heads)
        elif not separate:
            _check_sides(source, left_ids, right_ids)
        once.result()
        return grouped.result(), notes


def _ids(source: Source, columns: Columns, side: int) -> Any:
    """Return the ids of one side, one for each row; raise if one is missing."""
    name = (columns.left, columns.right)[side]
    found = source.column(name)
    missing = found.null_count
    pc = arrow().compute
    if arrow().types.is_floating(found.type):
        missing += pc.sum(pc.is_nan(found)).as_py() or 0
    if missing:
        flags = pc.is_null(found, nan_is_null=True).to_numpy(zero_copy_only=False)
        raise ValueError(
            f"{source.place(int(np.flatnonzero(flags)[0]))}: expected an id in column {name!r}, "
            f"got nothing ({missing} in all)."
        )
    return found


def _with_datasets(
    source: Source, columns: Columns, left: Any, right: Any, kept: np.ndarray | None
) -> tuple[Any, Any, str | None]:
    """Join ids with the names of their tables, if these are more than one for each side."""
    if columns.datasets is None:
        return left, right, None
    pa = arrow()
    names = [source.column(name) for name in columns.datasets]
    if kept is not None:
        names = [column.filter(pa.array(kept)) for column in names]
    sets = [set(column.unique().to_pylist()) for column in names]
    if len(sets[0]) == len(sets[1]) == 1 and sets[0] != sets[1]:
        return left, right, None
    if len(sets[0] | sets[1]) == 1:
        return left, right, "all records are of one table"
    text = pa.string()
    joined = [
        pa.compute.binary_join_element_wise(name.cast(text), ids.cast(text), "-__-")
        for name, ids in zip(names, (left, right), strict=True)
    ]
    note = "records of several tables: ids are joined with the names of their tables"
    return joined[0], joined[1], note


def _encode(ids: Any) -> tuple[Any, np.ndarray]:
    """Return the different ids in the order of their first use, and (E,) places among them."""
    pa = arrow()
    encoded = ids.dictionary_encode()
    codes = np.empty(len(ids), np.int32)
    start = 0
    for chunk in encoded.chunks:
        codes[start : start + len(chunk)] = chunk.indices.to_numpy(zero_copy_only=False)
        start += len(chunk)
    # All chunks share the dictionary of the last one.
    return encoded.chunks[-1].dictionary if encoded.num_chunks else pa.array([], ids.type), codes


def _encode_together(source: Source, left: Any, right: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    pa = arrow()
    if left.type != right.type:
        try:
            right = right.cast(left.type)
        except pa.ArrowException:
            raise ValueError(
                f"{source.name}: expected ids of one type for one table, got {left.type} and "
                f"{right.type}."
            ) from None
    ids, codes = _encode(pa.chunked_array([*left.chunks, *right.chunks], type=left.type))
    return ids, codes[: len(left)], codes[len(left) :].copy()


def _check_ends(source: Source, ids: Any, tails: np.ndarray, heads: np.ndarray) -> None:
    same = np.flatnonzero(tails == heads)
    if len(same):
        raise ValueError(
            f"{source.name}: expected pairs of different records, got "
            f"{ids[int(tails[same[0]])].as_py()!r:.60} with itself."
        )


def _check_sides(source: Source, left_ids: Any, right_ids: Any) -> None:
    if left_ids.type != right_ids.type:
        return
    pc = arrow().compute
    kinds = arrow().types
    if kinds.is_string(left_ids.type) or kinds.is_integer(left_ids.type):
        # Ids with the name of their table in front are easily told apart.
        low, high = (end.as_py() for end in pc.min_max(left_ids).values())
        first, last = (end.as_py() for end in pc.min_max(right_ids).values())
        if high < first or last < low:
            return
    both = left_ids.filter(pc.is_in(left_ids, value_set=right_ids))
    if len(both):
        raise ValueError(
            f"{source.name}: expected a record on one side only, got {both[0].as_py()!r:.60} on "
            f"both ({len(both)} such ids); use --dedupe to link one table with itself, or "
            "--separate-ids if equal ids on the two sides are different records."
        )


def _check_duplicates(
    source: Source, left_ids: Any, right_ids: Any, tails: np.ndarray, heads: np.ndarray
) -> None:
    num = len(left_ids) + (0 if right_ids is None else len(right_ids))
    first, second = (tails, heads) if right_ids is not None else (
        np.minimum(tails, heads),
        np.maximum(tails, heads),
    )  # fmt: skip
    keys = first.astype(np.int64) * num + second
    keys.sort()
    twice = keys[1:][keys[1:] == keys[:-1]]
    if len(twice):
        a, b = divmod(int(twice[0]), num)
        other = left_ids[b] if right_ids is None else right_ids[b - len(left_ids)]
        raise ValueError(
            f"{source.name}: expected each pair once, got {left_ids[a].as_py()!r:.60} and "
            f"{other.as_py()!r:.60} again ({len(twice)} repeated pairs)."
        )


def regrouped(graph: Graph, pairs: np.ndarray) -> Graph:
    """Return the graph of some of the pairs and all records."""
    return _grouped(
        graph.left_ids,
        graph.right_ids,
        graph.tails[pairs],
        graph.heads[pairs],
        graph.weights[pairs],
        None,
    )


def _grouped(
    left_ids: Any,
    right_ids: Any,
    tails: np.ndarray,
    heads: np.ndarray,
    weights: np.ndarray,
    kept: np.ndarray | None,
) -> Graph:
    """Split pairs into connected groups."""
    # Imported here because it loads numba.
    from permvi.linkage.graph_kernels import join, number_roots, rank_in_groups, sort_by_group

    num = len(left_ids) + (0 if right_ids is None else len(right_ids))
    parents = np.arange(num, dtype=np.int32)
    for start in range(0, len(tails), _CHUNK):
        join(parents, tails[start : start + _CHUNK], heads[start : start + _CHUNK])
    labels = np.empty(num, np.int32)
    count = number_roots(parents, labels)
    del parents
    ranks, sizes = np.empty(num, np.int32), np.zeros(count, np.int64)
    rank_in_groups(labels, sizes, ranks)
    order, edge_ends = sort_by_group(tails, labels, count)
    num_left = np.bincount(labels[: len(left_ids)], minlength=count)
    return Graph(
        left_ids, right_ids, tails, heads, weights, weights, kept, labels, ranks, sizes, num_left,
        order, edge_ends,
    )  # fmt: skip
