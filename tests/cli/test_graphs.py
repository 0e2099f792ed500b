"""The commands info, doctor and convert."""

from __future__ import annotations

import json
import re
from pathlib import Path

import harmonium


def test_info_counts_a_graph(call, workspace: Path) -> None:
    result = call("info", workspace / "family")
    assert result.out.startswith("family: 40 entities, 3 relations; train 100, valid 10, test 10\n")
    assert "0 in valid, 0 in test" in result.out
    assert "before 34 1-1 person" in result.words
    assert "2 more" in call("info", workspace / "family", "--top", 1).words
    printed = json.loads(call("info", workspace / "family", "--format", "json").out)
    assert printed == json.loads(json.dumps(harmonium.info(workspace / "family")))
    assert "3,334 entities" in call("info", "atlas").out


def test_info_shows_how_a_run_went(call, run: Path) -> None:
    shown = call("info", run)
    assert shown.out.startswith(
        "HComplEx: composition complex; 8 numbers for an entity, 8 for a relation; W of rank 8, lambda 1"
    )
    assert "416 parameters; settings: given; nothing was searched" in shown.words
    assert "Link prediction on family" in shown.out
    printed = json.loads(call("info", run, "--format", "json").out)["run"]
    assert printed["settings"]["model"]["composition"] == "complex"
    assert (printed["epochs"], printed["parameters"]) == (20, 40 * 8 + 3 * 8 + 8 * 8 + 8)
    assert printed["metrics"]["metrics"] == harmonium.Run.load(run).metrics


def test_doctor_gives_a_verdict_and_a_cleaned_copy(call, workspace: Path, tmp_path: Path) -> None:
    clean = tmp_path / "clean"
    result = call("doctor", workspace / "family", "--clean", clean)
    assert result.out.startswith("family: leaking\n")
    assert re.search("inverse (next before|before next) 100%", result.words)
    assert "symmetric twin itself 100%" in result.words
    assert "1 redundant relations dropped" in result.words
    assert json.loads(call("doctor", clean, "--format", "json").out)["verdict"] == "ok"
    assert call("doctor", workspace / "family", "--format", "md").out.startswith("**leaking**: ")
    again = call("doctor", workspace / "family", "--clean", clean)
    assert (again.code, f"--clean {clean}" in again.err) == (2, True)


def test_doctor_lists_what_contradicts_an_older_version(call, run: Path, workspace: Path, tmp_path: Path) -> None:
    facts = [f"x{i},born in,town {i % 7}" for i in range(40)]
    (tmp_path / "old.csv").write_text("head,relation,tail\n" + "\n".join(facts) + "\n", encoding="utf-8")
    more = ["x1,born in,Town 1", "x2,born in,town 5", "x3,Born In,town 3"]
    (tmp_path / "new.csv").write_text("head,relation,tail\n" + "\n".join([*facts, *more]) + "\n", encoding="utf-8")
    words = ["doctor", tmp_path / "new.csv", "--since", tmp_path / "old.csv"]
    shown = call(*words).words
    assert "1 facts contradict what held in old" in shown
    assert "born in one tail per head x2 town 2, town 5 (new)" in shown
    printed = json.loads(call(*words, "--format", "json").out)["since"]
    assert printed["count"] == 1 and printed["rows"][0]["rule"] == "one tail per head"
    assert "| one tail per head |" in call(*words, "--format", "md").out
    assert "0 facts contradict" in call("doctor", workspace / "family", "--since", run).words


def test_doctor_checks_the_graph_of_a_run(call, run: Path, workspace: Path) -> None:
    of_run, of_graph = (
        json.loads(call("doctor", path, "--format", "json").out) for path in (run, workspace / "family")
    )
    assert of_run["verdict"] == of_graph["verdict"] and of_run["triples"] == of_graph["triples"]
    refused = call("doctor", run, "--columns", "1,2,3")
    assert refused.code == 2 and "is a run" in refused.err and "drop columns" in refused.err


def test_convert_takes_a_messy_table(call, tmp_path: Path) -> None:
    file, out = tmp_path / "messy.csv", tmp_path / "out"
    text = '\ufeffWho ; "How, really";Whom;since\n"Müller; Ana" ; knows;Zoë ;1999\n\nZoë;knows;"Müller; Ana";2001\n'
    file.write_bytes(text.encode())
    refused = call("convert", file, out)
    assert (refused.code, "4 columns" in refused.err) == (2, True)
    result = call("convert", file, out, "--columns", "1,2,3", "--header")
    assert (result.code, "2 entities, 1 relations; train 2" in result.words) == (0, True)
    assert (out / "train.tsv").read_text("utf-8") == "Müller; Ana\tknows\tZoë\nZoë\tknows\tMüller; Ana\n"
    printed = json.loads(call("convert", out, tmp_path / "out.nt", "--format", "json").out)
    assert (printed["entities"], printed["triples"]["train"]) == (2, 2)
    again = call("convert", out, tmp_path / "out.nt")
    assert (again.code, "--overwrite" in again.err) == (2, True)
