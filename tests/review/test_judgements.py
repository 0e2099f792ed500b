"""What judgements say together: precision against stated probability, lists of facts, exports and their way back."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import polars as pl
import pytest

from harmonium.data.tables.fact_file import FactReader
from harmonium.errors import HarmoniumError
from harmonium.review.judgements import (
    Judgements,
    by_fact,
    default_path,
    read_judgements,
    write_facts,
    write_judgements,
)
from harmonium.review.precision import ReviewSummary
from harmonium.review.store import Judgement, ReviewStore, Shown
from small import make_graph, make_run, untrained

ODD = 'a "quoted", <b>name</b> ü'
VERDICTS = [
    ("ana", "a", 0.95, "accepted", ""),
    ("ana", "b", 0.92, "rejected", 'no, "really" | <script>'),
    ("ben", "b", 0.92, "rejected", ""),
    ("ana", "c", 0.97, "accepted", ""),
    ("ben", "c", 0.97, "rejected", "I doubt it"),
    ("ana", "d", 0.3, "unsure", ""),
    ("ben", "e", None, "accepted", "=SUM(1)"),
    ("ben", ODD, 0.6, "accepted", ""),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with ReviewStore.open(tmp_path / "judged.sqlite") as store:
        for rank, (reviewer, head, p, verdict, comment) in enumerate(VERDICTS, start=1):
            store.add_reviewer(reviewer)
            shown = Shown((head, "http://x.org/r", "t"), f"{head} · r · t", p, p, rank, "use", "1f3a")
            store.judge(reviewer, shown, verdict, comment)
        return store.path


@pytest.fixture
def rows(path: Path) -> list[Judgement]:
    with ReviewStore.open(path) as store:
        return store.judgements()


def test_facts_are_accepted_or_rejected_where_all_who_decided_agree(path: Path) -> None:
    def fact(head: str) -> tuple[str, str, str]:
        return head, "http://x.org/r", "t"

    assert read_judgements(path) == Judgements([fact("a"), fact("e"), fact(ODD)], [fact("b")], [fact("c")])


def test_precision_is_compared_with_what_was_stated(rows: list[Judgement]) -> None:
    summary = ReviewSummary.of(rows)
    assert (summary.accepted, summary.rejected, summary.unsure, len(summary.disputed)) == (3, 1, 1, 1)
    assert summary.by_reviewer == {"ana": 4, "ben": 4}
    bins = {part.low: part for part in summary.bins if part.facts}
    assert bins.keys() == {0.5, 0.9}
    assert (bins[0.9].facts, bins[0.9].accepted, bins[0.9].stated) == (2, 0.5, pytest.approx(0.935))
    low, high = bins[0.9].interval
    assert 0 < low < 0.5 < high < 1
    assert summary.overall.facts == 3  # without those that have no probability, that are disputed or unsure
    assert sum(part.facts for part in summary.bins) == 3
    assert json.loads(json.dumps(summary.to_json()))["disputed"][0][1]["comment"] == "I doubt it"


# Files ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl", "parquet"])
def test_tables_hold_every_judgement_with_its_provenance(rows: list[Judgement], tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"out.{ending}"
    assert write_judgements(file, rows, "run") == len(rows)
    write_judgements(file, rows, "run")  # an earlier export may be replaced
    if ending == "parquet":
        table = pl.read_parquet(file).to_dicts()
    elif ending == "jsonl":
        table = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    else:
        dialect = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if ending == "tsv" else {}
        with file.open(encoding="utf-8", newline="") as text:
            table = list(csv.DictReader(text, **dialect))
    for row, expected in zip(table, rows, strict=True):
        for name, value in expected.to_json().items():
            assert str(row[name] if row[name] is not None else "") == str("" if value is None else value)


def test_other_files_are_not_replaced(rows: list[Judgement], tmp_path: Path) -> None:
    (tmp_path / "mine.tsv").write_text("my\tdata\n", encoding="utf-8")
    for name, message in (
        ("mine.tsv", "holds no results"),
        ("out.ttl", "unknown format"),
        ("out.xlsx", "unknown format"),
        ("no/out.tsv", "a folder"),
    ):
        with pytest.raises(HarmoniumError, match=message):
            write_judgements(tmp_path / name, rows, "run")


def test_accepted_and_rejected_facts_are_files_of_facts(rows: list[Judgement], path: Path, tmp_path: Path) -> None:
    lists = read_judgements(path)
    for verdict, expected in (("accepted", lists.accepted), ("rejected", lists.rejected)):
        file = tmp_path / f"{verdict}.tsv"
        assert write_facts(file, rows, verdict, "run") == len(expected)
        read = [tuple(cells[name] for name in ("head", "relation", "tail")) for _, cells in FactReader(file).rows()]
        assert read == expected
    assert len(by_fact(rows)) == 6
    with pytest.raises(HarmoniumError, match="unknown format"):
        write_facts(tmp_path / "accepted.nt.gz", rows, "accepted", "run")


def test_the_file_is_beside_the_run_so_that_training_again_does_not_remove_it(tmp_path: Path) -> None:
    graph = make_graph()
    run = make_run(graph, untrained(graph))
    with pytest.raises(HarmoniumError, match="--judgements FILE"):
        default_path(run)
    folder = run.save(tmp_path / "run")
    assert default_path(folder) == tmp_path / "run.review.sqlite"
