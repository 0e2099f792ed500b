"""Questions and facts from a file, answers into one: TSV, CSV, JSON lines, Parquet or RDF, a row at a time."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from itertools import groupby, islice, tee
from pathlib import Path
from typing import Any

from harmonium.errors import HarmoniumError
from harmonium.graph import Graph, Slot, Triples
from harmonium.prediction import Answer, Query, ask, vocabulary

FACT = [slot.value for slot in Slot]
ENDINGS = ".tsv, .csv, .jsonl, .parquet, .nt or .ttl"
ROWS = 2048  # read at once


def read_queries(path: str | Path, graph: Graph) -> Iterator[Query]:
    """Open queries: one of head, relation and tail is empty or '?' (or, in JSON, left out)."""
    for where, names in _read(Path(path)):
        yield located(
            where, lambda names=names: ask(graph, **{k: None if v in ("", "?") else v for k, v in names.items()})
        )


def read_facts(path: str | Path, graph: Graph) -> Iterator[Triples]:
    """Closed triples, in chunks."""
    rows = (
        located(where, lambda names=names: graph.triple(*(names[slot] or "" for slot in FACT)))
        for where, names in _read(Path(path))
    )
    while chunk := list(islice(rows, ROWS)):
        yield Triples.cat(chunk)


def batches(queries: Iterator[Query]) -> Iterator[tuple[Slot, list[Query]]]:
    """Queries in their order, neighbours with the same open slot together."""
    for slot, same in groupby(queries, key=lambda query: query.slot):
        while part := list(islice(same, ROWS)):
            yield slot, part


def answer_rows(graph: Graph, query: Query, answers: list[Answer]) -> Iterator[dict[str, Any]]:
    """Each answer as a fact by identifier, with what is thought of it."""
    given = [vocabulary(graph, slot).ids[int(query.triple[slot])] for slot in Slot]
    for found in answers:
        fact = {s.value: found.id if s is query.slot else text for s, text in zip(Slot, given, strict=True)}
        yield fact | {"open": query.slot.value} | {k: v for k, v in found.to_json().items() if k != "id"}


def located(where: str, make: Any) -> Any:
    """What a line means; a mistake in it says where it stands."""
    try:
        return make()
    except HarmoniumError as error:
        raise HarmoniumError(f"{where}: {error}") from None


def _read(path: Path) -> Iterator[tuple[str, dict[str, str | None]]]:
    """Where each line stands, and its head, relation and tail."""
    from harmonium.formats.files import bare, lines

    kind, some = bare(path).suffix, False
    for number, line in enumerate(lines(path), start=1):
        where, line = f"{path}:{number}", line.rstrip("\r\n")
        if not line.strip():
            continue
        if kind == ".jsonl":
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise HarmoniumError(f"{where}: not JSON ({error})") from error
            if not isinstance(row, dict) or not all(isinstance(row.get(slot), str | None) for slot in FACT):
                raise HarmoniumError(f'{where}: expected {{"head": "...", "relation": "...", "tail": null}}')
            fields = [row.get(slot) for slot in FACT]
        else:
            try:
                fields = next(csv.reader([line], strict=True)) if kind == ".csv" else line.split("\t")
            except csv.Error as error:
                raise HarmoniumError(f"{where}: not CSV ({error}); is a quote open?") from error
            if len(fields) != 3:
                found = f"found {len(fields)} column{'s' * (len(fields) != 1)}"
                raise HarmoniumError(f"{where}: {found}, expected 3: head, relation, tail; one may be '?' or empty")
            if not some and fields == FACT:  # a header
                continue
        some = True
        yield where, dict(zip(FACT, fields, strict=True))
    if not some:
        raise HarmoniumError(f"{path}: nothing in it; each line is head, relation, tail")


def write_rows(path: str | Path, rows: Iterator[dict[str, Any]], run: str) -> int:
    """Write rows as they come, the file whole or not at all; says how many. All rows have the same columns."""
    from harmonium.formats.files import bare, create

    path, kind, count = Path(path), bare(Path(path)).suffix, 0

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal count
        for row in rows:
            count += 1
            yield row

    if kind in (".nt", ".ttl"):
        from harmonium.formats.rdf import write_predictions

        facts, chances = tee(counted())
        write_predictions(path, ((r["head"], r["relation"], r["tail"]) for r in facts), map(_chance, chances), run)
    elif kind == ".parquet" and path.suffix == kind:
        import polars as pl

        draft = path.with_name(f".{os.getpid()}.{path.stem}.jsonl")
        try:
            write_rows(draft, counted(), run)
            pl.scan_ndjson(draft, infer_schema_length=None).sink_parquet(
                path
            ) if count else pl.DataFrame().write_parquet(path)
        finally:
            draft.unlink(missing_ok=True)
    elif kind in (".tsv", ".csv", ".jsonl"):
        with create(path) as raw, io.TextIOWrapper(raw, "utf-8", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            for row in counted():
                if kind == ".jsonl":
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
                    continue
                for cells in (list(row), list(row.values())) if count == 1 else (list(row.values()),):
                    table.writerow(cells) if kind == ".csv" else file.write(_tabs(cells))
    else:
        raise HarmoniumError(f"--out {path}: cannot tell its format; it may end in {ENDINGS}")
    return count


def _tabs(cells: list[Any]) -> str:
    texts = ["" if cell is None else str(cell) for cell in cells]
    if broken := [text for text in texts if "\t" in text or "\n" in text]:
        raise HarmoniumError(f"{broken[0]!r} has a tab or a line break in it; write .csv, .jsonl or .parquet instead")
    return "\t".join(texts) + "\n"


def _chance(row: dict[str, Any]) -> float:
    if row["probability"] is None:
        raise HarmoniumError("RDF is written with probabilities, and this run has too few validation facts for them")
    return row["probability"]
