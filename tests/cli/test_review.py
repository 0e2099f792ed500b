"""The command `review`, in a real terminal and without one, and `calibrate --judgements`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import judge_some
from harmonium.cli.review import judge_all
from harmonium.errors import HarmoniumError
from harmonium.review.judgements import read_judgements
from harmonium.review.session import Review
from small import fitted, make_graph, make_run


@pytest.fixture(scope="module")
def review(tmp_path_factory: pytest.TempPathFactory):
    graph = make_graph(n_entities=30, sizes=(150, 40, 10))
    opened = Review.open(
        make_run(graph, fitted(graph, graph.train)), tmp_path_factory.mktemp("review") / "x.sqlite", top=8
    )
    with opened.store:
        yield opened


def press(review: Review, reviewer: str, keys: str, comments: str = "") -> None:
    """Judge with these keys; at the end of the input the review ends."""
    pressed, written = iter(keys), iter(comments.split(","))

    def read_key() -> str:
        key = next(pressed, None)
        if key is None:
            raise EOFError
        return key

    judge_all(review, review.store.add_reviewer(reviewer), read_key, lambda: next(written))


def test_keys_judge_comment_undo_and_end(review: Review, capsys: pytest.CaptureFixture[str]) -> None:
    press(review, "ana", "aRcuxzzr", "why not,")
    kept = [(each.verdict, each.comment) for each in review.store.judgements()]
    assert kept == [("accepted", ""), ("rejected", "")]
    printed = capsys.readouterr().out
    assert "a accept   r reject" in printed  # for a key that means nothing
    assert "undone: unsure" in printed and "undone: rejected" in printed
    assert re.search(r"probability \d", printed) and "evidence: " in printed and "known of e" in printed
    press(review, "ben", "zpq")
    printed = capsys.readouterr().out
    assert "nothing to undo" in printed and "1 accepted, 1 rejected" in printed
    press(review, "cleo", "a" * 20)
    assert "no fact is left to judge; --top N asks for more" in capsys.readouterr().out
    assert len(review.store.judgements()) == 8


def test_everything_is_exported(call: Callable, run: Path, tmp_path: Path) -> None:
    judged = judge_some(tmp_path / "judged.sqlite")
    files = [tmp_path / name for name in ("all.jsonl", "accepted.tsv", "rejected.csv")]
    words = [
        f for option, file in zip(("--out", "--accepted", "--rejected"), files, strict=True) for f in (option, file)
    ]
    printed = call("review", run, "--judgements", judged, *words)
    assert printed.code == 0, printed.err
    assert "12 judgements" in printed.out and "8 accepted facts" in printed.out and "4 rejected facts" in printed.out
    assert all(file.is_file() for file in files)
    exported = json.loads(call("review", run, "--judgements", judged, "--format", "json").out)
    assert len(exported["judgements"]) == 12 and exported["summary"]["rejected"] == 4
    gone = call("review", run, "--judgements", tmp_path / "gone.sqlite", "--format", "csv")
    assert (gone.code, "no such file of judgements" in gone.err) == (2, True)
    wrong = call("review", run, "--judgements", judged, "--out", tmp_path / "all.doc")
    assert (wrong.code, "unknown format" in wrong.err) == (2, True)
    foreign = call("review", run, "--judgements", files[1], "--format", "csv")
    assert (foreign.code, "no file of judgements" in foreign.err) == (2, True)


def test_probabilities_are_corrected_by_judgements_and_the_correction_is_dropped(
    call: Callable, run: Path, tmp_path: Path
) -> None:
    judged = judge_some(tmp_path / "judged.sqlite", 30)
    printed = call("calibrate", run, "--judgements", judged)
    assert printed.code == 0, printed.err
    assert "30 judged facts: 66.7% accepted" in printed.out
    assert "were judged on predictions of other runs" in printed.out
    result = json.loads(call("calibrate", run, "--judgements", judged, "--format", "json").out)
    assert result["facts"] == 30 and result["log_loss"] > 0
    assert "dropped" in call("calibrate", run, "--forget-judgements").out
    for words, message in (
        (["--judgements", tmp_path / "gone"], "no such file"),
        (["--judgements", judged, "--forget-judgements"], "give one of"),
        (["--judgements", judge_some(tmp_path / "few.sqlite", 5)], "10 are needed"),
    ):
        refused = call("calibrate", run, *words)
        assert (refused.code, message in refused.err) == (2, True), refused.err


def test_facts_of_a_file_are_read_by_update(tmp_path: Path) -> None:
    lists = read_judgements(judge_some(tmp_path / "judged.sqlite", 6))
    assert (len(lists.accepted), lists.rejected[0]) == (4, ("person 0", "next", "person 5"))
    with pytest.raises(HarmoniumError, match="no such file"):
        read_judgements(tmp_path / "gone.sqlite")
