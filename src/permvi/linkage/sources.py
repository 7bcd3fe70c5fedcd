"""Read tables of candidate pairs as batches of Arrow columns, from files or from memory."""

import contextlib
import csv
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from permvi._files import write_bytes

# Rows in a part of a table, on disk and in memory.
PART_ROWS = 2**19
# Values of a column that tell whether it repeats itself.
_LOOK = 2**12
_CSV_ENDS = (".csv", ".tsv", ".txt", ".csv.gz", ".csv.zst", ".tsv.gz", ".tsv.zst", ".csv.zstd")
_PARQUET_ENDS = (".parquet", ".pq")
_ARROW_ENDS = (".arrow", ".feather", ".ipc", ".arrows")
_SEPARATORS = ("\t", ";", "|", ",")


def is_columnar(path: Path) -> bool:
    """Return whether a file is Parquet, Arrow or compressed, by its name."""
    name = path.name.lower()
    return name.endswith((*_PARQUET_ENDS, *_ARROW_ENDS, ".gz", ".zst", ".zstd"))


def arrow() -> Any:
    """Return pyarrow, or raise an error that says how to install it."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise ValueError(
            "pairs from files need pyarrow, which is not installed; pip install 'permvi[dask]'."
        ) from None
    return pyarrow


class Part(NamedTuple):
    """A part of a table: its file, a function from names of columns to batches, and its columns."""

    name: str
    read: Callable[[Sequence[str]], Iterable[Any]]
    schema: Any
    is_text: bool = False


class Source:
    """A table in several parts with the same columns.

    Attributes:
        schema: The Arrow schema that all parts are cast to.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        pa = arrow()
        self._parts = list(parts)
        first = self._parts[0]
        for part in self._parts[1:]:
            if set(part.schema.names) != set(first.schema.names):
                raise ValueError(
                    f"{part.name}: expected the columns of {first.name} "
                    f"({listed(first.schema.names)}), got {listed(part.schema.names)}."
                )
        repeated = [x for k, x in enumerate(first.schema.names) if x in first.schema.names[:k]]
        if repeated:
            raise ValueError(f"{first.name}: expected one column {repeated[0]!r}, got several.")
        # Text takes the types of the columns of other files, if there are any.
        typed = [part.schema for part in self._parts if not part.is_text]
        self._is_text = not typed
        try:
            self.schema = pa.unify_schemas(
                typed or [first.schema], promote_options="permissive"
            ).remove_metadata()
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ValueError(
                f"{self.name}: expected columns of one type in all files ({first_line(error)})."
            ) from None

    @property
    def name(self) -> str:
        """What to call the table in errors: its first file."""
        return self._parts[0].name

    def settle_types(self, ids: Collection[str]) -> None:
        """Give the columns of CSV files types that lose nothing.

        A column of whole numbers without leading zeros becomes int64, one of other numbers float64
        unless it holds ids, and all others stay text.
        """
        if not self._is_text:
            return
        for k, name in enumerate(self.schema.names):
            kind = _natural_type(self.column(name), whole_only=name in ids)
            self.schema = self.schema.set(k, arrow().field(name, kind))

    def place(self, row: int) -> str:
        """Describe where a row is, for an error message; rows count from 1 after the header."""
        for part in self._parts:
            count = sum(batch.num_rows for batch in part.read(self.schema.names[:1]))
            if row < count:
                return f"{part.name}, row {row + 1}"
            row -= count
        return self.name

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield the rows in order as tables of at most `PART_ROWS` rows, with these columns."""
        pa = arrow()
        wanted = list(self.schema.names if columns is None else columns)
        target = pa.schema([self.schema.field(name) for name in wanted])
        for part in self._parts:
            with named_errors(part.name):
                for batch in part.read(wanted):
                    whole = isinstance(batch, pa.Table)
                    table = batch if whole else pa.Table.from_batches([batch])
                    yield table.select(wanted).cast(target)

    def parts(self) -> Iterator[Any]:
        """Yield the whole table in parts of exactly `PART_ROWS` rows, but for the last one."""
        pa = arrow()
        waiting: list[Any] = []
        count = 0
        for table in self.batches():
            waiting.append(table)
            count += len(table)
            while count >= PART_ROWS:
                joined = pa.concat_tables(waiting)
                yield joined.slice(0, PART_ROWS)
                waiting, count = [joined.slice(PART_ROWS)], count - PART_ROWS
        if count:
            yield pa.concat_tables(waiting)

    def column(self, name: str) -> Any:
        """Return a whole column as a chunked array, categories as their values."""
        pa = arrow()
        chunks = []
        for table in self.batches([name]):
            chunks += table.column(0).chunks
        found = pa.chunked_array(chunks, type=self.schema.field(name).type)
        if pa.types.is_dictionary(found.type):
            found = found.cast(found.type.value_type)
        return found


def _natural_type(column: Any, *, whole_only: bool) -> Any:
    """Return the Arrow type of a column of text that keeps all of its values."""
    pa = arrow()
    pc = pa.compute
    if column.null_count == len(column):
        return pa.string()
    with contextlib.suppress(pa.ArrowInvalid):
        back = column.cast(pa.int64()).cast(pa.string())
        if pc.all(pc.equal(back, column)).as_py():
            return pa.int64()
    with contextlib.suppress(pa.ArrowInvalid):
        zeros = pc.any(pc.match_substring_regex(column, "^[-+]?0[0-9]")).as_py()
        if not whole_only and not zeros:
            return column.cast(pa.float64()).type
    return pa.string()


def open_source(pairs: Any, spool: Path, client: Any = None) -> Source:
    """Open pairs for reading.

    Args:
        pairs: A file or several; an Arrow table; a pandas or Dask DataFrame, or a mapping of names
            to columns.
        spool: A folder for files that have to be read several times and cannot: CSV files and Dask
            DataFrames are copied to it as Parquet.
        client: The Dask client that computes the partitions of a Dask DataFrame.

    Raises:
        ValueError: A file does not exist, is empty, or cannot be read.
        TypeError: ``pairs`` is of another kind.
    """
    if isinstance(pairs, str | Path):
        pairs = [pairs]
    if isinstance(pairs, list | tuple) and all(isinstance(p, str | Path) for p in pairs):
        if not pairs:
            raise ValueError("pairs must have at least one file, got none.")
        paths = [file for given in pairs for file in _files(Path(given))]
        opened = [_open_file(path, k, spool) for k, path in enumerate(paths)]
        return Source([part for parts in opened for part in parts])
    if hasattr(pairs, "to_delayed") and hasattr(pairs, "npartitions"):
        partitions = (
            part.compute() if client is None else client.compute(part).result()
            for part in pairs.partitions
        )
        return Source(_spooled("pairs", map(_in_memory, partitions), spool, "frame"))
    table = _in_memory(pairs)
    return Source([Part("pairs", lambda columns: _slices(table, columns), table.schema)])


def _in_memory(pairs: Any) -> Any:
    """Return a table in memory as an Arrow table."""
    pa = arrow()
    if isinstance(pairs, pa.Table):
        return pairs
    try:
        if hasattr(pairs, "iloc"):
            return pa.Table.from_pandas(pairs, preserve_index=False)
        return pa.table(pairs)
    except (TypeError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise TypeError(
            "pairs must be files, an Arrow table, a DataFrame or a mapping of columns, got "
            f"{type(pairs).__name__} ({first_line(error)})."
        ) from None


def _slices(table: Any, columns: Sequence[str]) -> Iterator[Any]:
    chosen = table.select(columns)
    for start in range(0, max(len(table), 1), PART_ROWS):
        yield chosen.slice(start, PART_ROWS)


def _files(path: Path) -> list[Path]:
    """Return the file, or the files in a folder such as Spark and Dask write."""
    if path.is_dir():
        found = sorted(
            file for file in path.iterdir() if file.is_file() and file.name[0] not in "._"
        )
        if not found:
            raise ValueError(f"{path}: expected files of pairs, got an empty folder.")
        return found
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a file of pairs, got no such file.")
    if not path.stat().st_size:
        raise ValueError(f"{path}: expected a table of pairs, got an empty file.")
    return [path]


def _open_file(path: Path, number: int, spool: Path) -> list[Part]:
    name = path.name.lower()
    if name.endswith(_PARQUET_ENDS):
        with named_errors(path):
            schema = arrow().parquet.read_schema(path)
        return [Part(str(path), lambda columns: _parquet(path, columns), schema)]
    if name.endswith(_ARROW_ENDS):
        with named_errors(path), _ipc(path) as reader:
            schema = reader.schema
        return [Part(str(path), lambda columns: _arrow_file(path, columns), schema)]
    if name.endswith(_CSV_ENDS):
        with named_errors(path):
            found = _spooled(str(path), _csv(path), spool, f"csv-{number:04d}")
        return [part._replace(is_text=True) for part in found]
    raise ValueError(
        f"{path}: expected a name that ends in {listed((*_CSV_ENDS, *_PARQUET_ENDS))} or "
        f"{listed(_ARROW_ENDS)}."
    )


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    with arrow().parquet.ParquetFile(path) as file:
        yield from file.iter_batches(batch_size=PART_ROWS, columns=list(columns))


@contextlib.contextmanager
def _ipc(path: Path) -> Iterator[Any]:
    """Open an Arrow file, or a file with an Arrow stream."""
    pa = arrow()
    with pa.OSFile(str(path)) as file:
        try:
            reader = pa.ipc.open_file(file)
        except pa.ArrowInvalid:
            file.seek(0)
            reader = pa.ipc.open_stream(file)
        yield reader


def _arrow_file(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    with _ipc(path) as reader:
        if hasattr(reader, "num_record_batches"):
            found = (reader.get_batch(k) for k in range(reader.num_record_batches))
        else:
            found = iter(reader)
        for batch in found:
            yield batch.select(list(columns))


def _csv(path: Path) -> Iterator[Any]:
    """Yield the blocks of a CSV file with all columns as text: ids such as 007 keep their zeros."""
    pa = arrow()
    from pyarrow import csv as reading

    with pa.input_stream(str(path), compression="detect") as stream:
        start = stream.read(2**16)
    line = start.split(b"\n", 1)[0].decode("utf-8-sig").rstrip("\r")
    separator = max(_SEPARATORS, key=line.count)
    names = next(csv.reader([line], delimiter=separator), [])
    if not any(name.strip() for name in names):
        raise ValueError(f"{path}: expected a header with the names of the columns, got none.")
    with (
        pa.input_stream(str(path), compression="detect") as stream,
        reading.open_csv(
            stream,
            read_options=reading.ReadOptions(block_size=2**24),
            parse_options=reading.ParseOptions(delimiter=separator, newlines_in_values=True),
            convert_options=reading.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=True,
                null_values=[""],
                quoted_strings_can_be_null=True,
            ),
        ) as reader,
    ):
        yield pa.Table.from_batches([], reader.schema)
        for batch in reader:
            yield pa.Table.from_batches([batch])


def _spooled(name: str, tables: Iterable[Any], spool: Path, stem: str) -> list[Part]:
    """Copy tables to Parquet files in a folder, and return these as parts of a source."""
    files: list[Path] = []
    schema = None
    for table in tables:
        schema = table.schema if schema is None else schema
        if len(table):
            file = spool / f"{stem}-{len(files):05d}.parquet"
            files.append(write_table(file, table))
    if schema is None:
        raise ValueError(f"{name}: expected a table of pairs, got an empty one.")
    if not files:
        empty = arrow().Table.from_batches([], schema)
        return [Part(name, lambda columns: [empty.select(columns)], schema)]

    def reader(file: Path) -> Callable[[Sequence[str]], Iterable[Any]]:
        return lambda columns: _parquet(file, columns)

    return [Part(name, reader(file), schema) for file in files]


def write_table(path: Path, table: Any) -> Path:
    """Write an Arrow table as a Parquet file, whole or not at all."""
    pa = arrow()
    sink = pa.BufferOutputStream()
    # Probabilities and ids hardly repeat: a dictionary of them would be built in vain.
    repeating = [name for name in table.schema.names if _repeats(table[name])]
    pa.parquet.write_table(table, sink, compression="lz4", use_dictionary=repeating)
    return write_bytes(path, memoryview(sink.getvalue()))


def _repeats(column: Any) -> bool:
    """Return whether a column is likely to have many equal values, by its first ones."""
    kinds = arrow().types
    if kinds.is_floating(column.type) or kinds.is_nested(column.type):
        return False
    start = column.slice(0, _LOOK)
    return len(start.unique()) <= len(start) // 2


@contextlib.contextmanager
def named_errors(path: Any) -> Iterator[None]:
    """Turn what pyarrow and the system say about a file into one sentence that names it."""
    pa = arrow()
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError, EOFError) as error:
        raise ValueError(f"{path}: cannot be read ({first_line(error)}).") from None
    except OSError as error:
        if error.errno is not None or str(path) in str(error):
            raise
        raise ValueError(f"{path}: cannot be read ({first_line(error)}).") from None


def first_line(error: BaseException) -> str:
    """Return the message of an error in one line."""
    return " ".join(str(error).split()).rstrip(".")[:200]


def listed(names: Iterable[str], most: int = 12) -> str:
    """Return names as a list for an error message."""
    known = list(names)
    more = f", and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(map(repr, known[:most])) + more
