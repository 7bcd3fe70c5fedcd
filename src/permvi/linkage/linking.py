"""Link records by lists of candidate pairs: from files or tables to consistent probabilities."""

import dataclasses
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from permvi import _checks, _threads
from permvi._files import write_json
from permvi._version import __version__
from permvi.inference.method import Progress, silent
from permvi.linkage import run, tables
from permvi.linkage.calibration import Calibration, calibrate_weights
from permvi.linkage.columns import Columns, find_columns, read_scores
from permvi.linkage.graph import Graph, build_graph
from permvi.linkage.solve import RULES, Answer
from permvi.linkage.sources import Source, arrow, open_source
from permvi.linkage.summary import by_group, summarise

_MAY_STAY_UNMATCHED = (
    "records may stay unmatched, so that a pair without competitors keeps its own probability"
)


@dataclasses.dataclass(frozen=True, eq=False)
class Linkage:
    """The result of `match_pairs`, in a folder.

    Attributes:
        folder: The folder with the tables: ``pairs``, ``left`` and ``right`` (or ``records``),
            ``components``, ``thresholds.csv``, ``review.csv`` and ``summary.json``.
        summary: Counts, expected matches, expected precision and recall, and verdicts.
        assumptions: What was assumed about the input, in words.
        calibration: The fit of weights to known pairs, if there was one.
    """

    folder: Path
    summary: dict[str, Any]
    assumptions: tuple[str, ...]
    calibration: Calibration | None = None

    def table(self, name: str = "pairs") -> Any:
        """Return a whole table as an Arrow table, e.g. "pairs", "left" or "components"."""
        folder = self.folder / name
        if not folder.is_dir():
            known = sorted(path.name for path in self.folder.iterdir() if path.is_dir())
            raise ValueError(f"name must be one of {', '.join(known)}, got {name!r}.")
        return arrow().parquet.read_table(folder)

    def to_pandas(self, name: str = "pairs") -> Any:
        """Return a whole table as a pandas DataFrame."""
        return self.table(name).to_pandas()

    def to_dask(self, name: str = "pairs") -> Any:
        """Return a table as a Dask DataFrame, which reads its files when it is computed."""
        import dask.dataframe

        return dask.dataframe.read_parquet(sorted((self.folder / name).glob("*.parquet")))


def match_pairs(
    pairs: Any,
    *,
    out: str | Path | None = None,
    rule: str = "one-to-one",
    item_col: str | None = None,
    label_col: str | None = None,
    score_col: str | None = None,
    kind: str | None = None,
    temperature: float = 1.0,
    unmatched: float = 0.0,
    threshold: float | None = None,
    separate_ids: bool = False,
    calibrate: Any = None,
    seed: int = 0,
    workers: int | None = None,
    scheduler: str | None = None,
    client: Any = None,
    progress: Progress | None = None,
) -> Linkage:
    r"""Make the probabilities of candidate pairs consistent with each other.

    The probability of a linking x is proportional to :math:`\prod_{e \in x} e^{w_e}` over all sets
    of pairs that the rule allows, where :math:`w_e` is the log odds that pair e is a match, judged
    by itself. A record that stays unmatched has weight 1, so a pair without competitors keeps its
    own probability :math:`1 / (1 + e^{-w_e})`. Records that no path of pairs connects are
    independent; each connected component is solved exactly if that is affordable, and otherwise by
    Markov chains with a verdict.

    Args:
        pairs: A file or a list of files (CSV, also .gz or .zst, Parquet or Arrow) or a folder of
            them, an Arrow table, or a pandas or Dask DataFrame. Columns as Splink names them are
            found by themselves. All other columns are carried through.
        out: The folder for the results; a run that was killed resumes there. By default a temporary
            one, which is removed with the result.
        rule: "one-to-one": a record has at most one match. "one-to-many": a left record may have
            several, a right one has at most one; "many-to-one" is the reverse. "dedupe": pairs
            within one table, and a record has at most one match.
        item_col: The column of left records.
        label_col: The column of right records.
        score_col: The column of scores.
        kind: The meaning of scores: "log-odds" (natural), "log2-odds", "probabilities", "scores"
            (log odds times ``temperature``) or "costs"; by default by the name of the column.
        temperature: Divides log odds.
        unmatched: Subtracted from the log odds of each pair: what a pair has to beat.
        threshold: Leave out pairs whose own probability is below this.
        separate_ids: Equal ids on the left and on the right are different records.
        calibrate: Known pairs, as a file or table with the columns of records and one that says
            whether a pair is a match; see `permvi.linkage.calibration`.
        seed: The seed of chains. The same seed gives the same result.
        workers: The number of Dask workers to start on this machine, each of which is a process
            that uses one core. By default the threads of this process do the work, on all cores.
        scheduler: The address of a Dask scheduler.
        client: A Dask client.
        progress: Called now and then as ``progress(what, done, total)``.

    Returns:
        The tables, in a folder, and a summary.

    Raises:
        ValueError: Columns are missing, a score is missing or out of range, a pair is listed twice,
            a record is on both sides, or a file cannot be read.
    """
    _checks.one_of("rule", rule, RULES)
    if workers is not None:
        _checks.whole("workers", workers)
    _checks.positive_number("temperature", temperature)
    if threshold is not None and not 0.0 <= threshold <= 1.0:
        raise ValueError(f"threshold must be a probability, got {threshold:g}.")
    if not np.isfinite(unmatched):
        raise ValueError(f"unmatched must be finite, got {unmatched:g}.")
    seed, progress = _checks.seed(seed), progress or silent
    temporary = Path(tempfile.mkdtemp(prefix="permvi-")) if out is None else None
    folder = Path(out) if out is not None else Path(str(temporary)) / "linking"
    try:
        found = _match(
            pairs, folder, rule, (item_col, label_col, score_col, kind), temperature, unmatched,
            threshold, calibrate, seed, progress, separate_ids=separate_ids,
            where={"workers": workers, "scheduler": scheduler, "client": client},
        )  # fmt: skip
    except BaseException:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        raise
    if temporary is not None:
        # The folder goes with the result.
        weakref.finalize(found, shutil.rmtree, temporary, ignore_errors=True)
    return found


def _match(
    pairs: Any,
    out: Path,
    rule: str,
    columns_given: tuple[str | None, str | None, str | None, str | None],
    temperature: float,
    unmatched: float,
    threshold: float | None,
    calibrate: Any,
    seed: int,
    progress: Progress,
    *,
    separate_ids: bool,
    where: dict[str, Any],
) -> Linkage:
    """Read, link and write; the arguments are those of `match_pairs`."""
    with run.opened(out) as place:
        spool = place.work / run.SPOOL
        spool.mkdir(exist_ok=True)
        progress("reading", 0, 1)
        source = open_source(pairs, spool, where["client"])
        columns = find_columns(source, *columns_given)
        source.settle_types((columns.left, columns.right))
        notes: list[str] = []

        def weights() -> np.ndarray:
            found, said = read_scores(source, columns, temperature)
            notes.extend(said)
            found -= unmatched
            return found

        # Workers start while the pairs are read, and end while the tables are written.
        with run.client_of(**where) as workers:
            graph, more = build_graph(
                source,
                columns,
                weights,
                rule=rule,
                threshold=threshold,
                separate_ids=separate_ids,
            )
            fitted = None
            if calibrate is not None:
                progress("calibrating", 0, 1)
                graph, fitted = calibrate_weights(graph, rule, calibrate, columns, spool, seed)
            settings = (rule, seed, __version__, source.schema.to_string())
            fingerprint = graph.fingerprint(*settings)
            run.check_same_run(place, fingerprint)
            found = run.solve_all(
                graph, rule, seed, work=place.work, progress=progress, client=workers.wait()
            )
            workers.release()
            progress("writing", 0, 1)
            assumptions = (*columns.notes, *notes, *more, _MAY_STAY_UNMATCHED)
            with run.publishing(place) as folder:
                summary = _write(folder, source, columns, graph, rule, found, fitted)
                summary |= {"assumptions": list(assumptions)}
                write_json(folder / "run.json", {"fingerprint": fingerprint})
                write_json(folder / "summary.json", summary)
    return Linkage(out, summary, assumptions, fitted)


def _write(
    folder: Path,
    source: Source,
    columns: Columns,
    graph: Graph,
    rule: str,
    found: Answer,
    fitted: Calibration | None,
) -> dict[str, Any]:
    """Write all tables into a folder, and return the summary."""
    for name in ("pairs", "components"):
        (folder / name).mkdir()
    with _threads.pool(2) as threads:
        # Records first, which take longest; pairs have threads of their own.
        jobs = [
            threads.submit(tables.write_records, folder, columns, graph, rule, found),
            threads.submit(_write_groups, folder, graph, found),
        ]
        uncertain = 0.0 if fitted is None else fitted.relative_sd
        summing = threads.submit(summarise, graph, rule, found, uncertain)
        tables.write_pairs(folder / "pairs", source, graph, found)
        for job in jobs:
            job.result()
        summary, thresholds = summing.result()
    tables.write_thresholds(folder / "thresholds.csv", thresholds)
    if fitted is not None:
        summary |= {"calibration": fitted.as_dict(found.p, graph)}
    return summary


def _write_groups(folder: Path, graph: Graph, found: Answer) -> None:
    """Write the table of components, and those worth a look."""
    sums = by_group(graph, found)
    tables.write_components(folder / "components", graph, found, sums)
    tables.write_reviews(folder / "review.csv", graph, found, sums.wrong)
