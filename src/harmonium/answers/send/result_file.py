"""Write rows of results to a file as they are produced: TSV, CSV, JSON lines, Parquet or RDF."""

import csv
import io
import json
import os
import tempfile
from collections.abc import Iterator
from itertools import tee
from pathlib import Path
from typing import Any

from harmonium.data.compressed import READ_ERRORS, create_file, open_bytes, strip_compression
from harmonium.errors import HarmoniumError
from harmonium.runtime.untrusted import check_output_file

RESULT_SUFFIXES = (".tsv", ".csv", ".jsonl", ".parquet", ".nt", ".ttl")
RDF_SUFFIXES = (".nt", ".ttl")
FACT_COLUMNS = {"head", "relation", "tail"}
RESULT_COLUMNS = (
    FACT_COLUMNS | {"score"},
    FACT_COLUMNS | {"verdict"},
    {"rule", "weight"},
)  # predictions, judgements, rules
Row = dict[str, Any]


def check_path(path: str | Path) -> None:
    """Refuse a file that cannot be written before any work is done."""
    path = Path(path)
    kind = strip_compression(path).suffix
    if kind not in RESULT_SUFFIXES or (kind == ".parquet" and path.suffix != kind):
        raise HarmoniumError(f"--out {path}: unknown format; the name must end in {', '.join(RESULT_SUFFIXES)}")
    check_writable(path)
    if path.exists() and not _holds_results(path, kind):
        raise not_ours(path)


def check_writable(path: Path) -> None:
    """Refuse a file whose folder or name does not allow it to be written."""
    try:
        check_output_file(path)
    except OSError as error:
        raise HarmoniumError(f"--out {path}: cannot be written ({error.strerror})") from error
    if not os.access(path.parent, os.W_OK):
        raise HarmoniumError(f"--out {path}: cannot be written; is {path.parent} a folder that you may write to?")


def not_ours(path: Path) -> HarmoniumError:
    """The error for an existing file that we did not write."""
    return HarmoniumError(
        f"--out {path}: exists and holds no results of harmonium, so it will not be replaced; choose another name"
    )


def _holds_results(path: Path, kind: str) -> bool:
    """Whether a file is empty or has the columns of results, so that it may be replaced."""
    if not path.is_file():
        return False
    try:
        if kind == ".parquet":
            return _are_results(parquet_columns(path)) or not parquet_columns(path)
        with open_bytes(path) as file:
            head = file.read(1 << 16)
        line = head.partition(b"\n")[0].decode().rstrip("\r")
        if not head or kind in RDF_SUFFIXES:
            return not head or b"harmonium:" in head
        if kind == ".jsonl":
            return _are_results(set(json.loads(line)))
        return _are_results(set(next(csv.reader([line], delimiter="\t" if kind == ".tsv" else ","))))
    except READ_ERRORS:
        return False
    except (ValueError, TypeError, StopIteration, RecursionError, csv.Error):  # a HarmoniumError is a ValueError
        return False


def _are_results(columns: set[str]) -> bool:
    return any(columns >= known for known in RESULT_COLUMNS)


def parquet_columns(path: Path) -> set[str]:
    import polars as pl

    try:
        return set(pl.read_parquet_schema(path))
    except pl.exceptions.PolarsError as error:
        raise ValueError("not a Parquet file") from error


def write_rows(path: str | Path, rows: Iterator[Row], run: str) -> int:
    """Write rows with the same columns and return their number. The file is written atomically."""
    path = Path(path)
    check_path(path)
    kind = strip_compression(path).suffix
    if kind in RDF_SUFFIXES:
        return _write_rdf(path, rows, run)
    return _write_parquet(path, rows) if kind == ".parquet" else _write_text(path, rows, kind)


def _write_rdf(path: Path, rows: Iterator[Row], run: str) -> int:
    from harmonium.data.formats.rdf.files import write_predictions

    count = 0

    def probabilities(rows: Iterator[Row]) -> Iterator[float | None]:
        nonlocal count
        for row in rows:
            count += 1
            yield row["probability"]

    facts, rated = tee(rows)
    write_predictions(path, ((row["head"], row["relation"], row["tail"]) for row in facts), probabilities(rated), run)
    return count


def _write_parquet(path: Path, rows: Iterator[Row]) -> int:
    """Write Parquet through a temporary JSON file, so that memory stays bounded."""
    import polars as pl

    with create_file(path) as file, tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder:
        temporary = Path(folder) / "rows.jsonl"
        count = _write_text(temporary, rows, ".jsonl")
        if count:
            pl.scan_ndjson(temporary, infer_schema_length=None).sink_parquet(file)
        else:
            pl.DataFrame().write_parquet(file)
    return count


def _write_text(path: Path, rows: Iterator[Row], kind: str) -> int:
    """Write JSON lines, or CSV or TSV with a header."""
    count = 0
    with create_file(path) as raw, io.TextIOWrapper(raw, "utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        for count, row in enumerate(rows, start=1):
            lines = [list(row), list(row.values())] if count == 1 else [list(row.values())]
            if kind == ".jsonl":
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
            elif kind == ".csv":
                table.writerows(lines)
            else:
                file.writelines(map(_tsv_line, lines))
    return count


def _tsv_line(cells: list[Any]) -> str:
    texts = ["" if cell is None else str(cell) for cell in cells]
    for text in texts:
        if "\t" in text or "\n" in text:
            raise HarmoniumError(f"{text!r} contains a tab or a line break; write .csv, .jsonl or .parquet instead")
    return "\t".join(texts) + "\n"
