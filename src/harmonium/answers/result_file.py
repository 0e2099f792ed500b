"""Rows of results into a file: TSV, CSV, JSON lines, Parquet or RDF, written as they come."""

import csv
import io
import json
import os
from collections.abc import Iterator
from itertools import tee
from pathlib import Path
from typing import Any

from harmonium.data.compressed import create_file, strip_compression
from harmonium.runtime.errors import HarmoniumError

KINDS = (".tsv", ".csv", ".jsonl", ".parquet", ".nt", ".ttl")
ENDINGS = ".tsv, .csv, .jsonl, .parquet, .nt or .ttl"
Row = dict[str, Any]


def check_path(path: str | Path) -> None:
    """Refuse a file that cannot be written before any work is done."""
    path = Path(path)
    kind = strip_compression(path).suffix
    if kind not in KINDS or (kind == ".parquet" and path.suffix != kind):
        raise HarmoniumError(f"--out {path}: unknown format; the name must end in {ENDINGS}")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise HarmoniumError(f"--out {path}: cannot be written; is {path.parent} a folder that you may write to?")


def write_rows(path: str | Path, rows: Iterator[Row], run: str) -> int:
    """Write rows with the same columns and return their number; the file appears complete or not at all."""
    path = Path(path)
    kind = strip_compression(path).suffix
    if kind in (".nt", ".ttl"):
        return _write_rdf(path, rows, run)
    if kind == ".parquet" and path.suffix == kind:
        return _write_parquet(path, rows)
    if kind in (".tsv", ".csv", ".jsonl"):
        return _write_text(path, rows, kind)
    raise HarmoniumError(f"--out {path}: unknown format; the name must end in {ENDINGS}")


def _write_rdf(path: Path, rows: Iterator[Row], run: str) -> int:
    from harmonium.data.formats.rdf import write_predictions

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
    """By way of a temporary JSON file, so that memory stays bounded."""
    import polars as pl

    temporary = path.with_name(f".{os.getpid()}.{path.stem}.jsonl")
    try:
        count = _write_text(temporary, rows, ".jsonl")
        if count:
            pl.scan_ndjson(temporary, infer_schema_length=None).sink_parquet(path)
        else:
            pl.DataFrame().write_parquet(path)
    finally:
        temporary.unlink(missing_ok=True)
    return count


def _write_text(path: Path, rows: Iterator[Row], kind: str) -> int:
    """JSON lines, or CSV or TSV with a header."""
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
