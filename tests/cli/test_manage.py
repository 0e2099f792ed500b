"""The commands update and export."""

from __future__ import annotations

import json
from pathlib import Path

from harmonium.run.run import Run


def test_update_and_undo(call, run: Path, tmp_path: Path) -> None:
    facts, wrong, out = tmp_path / "facts.tsv", tmp_path / "wrong.tsv", tmp_path / "more"
    facts.write_text("Zoe\tnext\tperson 3\nperson 3\tbefore\tZoe\nZoe\tknows\tperson 2\n", encoding="utf-8")
    wrong.write_text("person 1\tnext\tperson 5\n", encoding="utf-8")
    result = call("update", run, "--add", facts, "--remove", wrong, "--out", out)
    assert result.out.startswith("3 facts added, 0 removed, 1 more recorded as false"), result.err
    assert "new entities: Zoe" in result.out and "new relations: knows" in result.out
    assert f"run folder: {out}" in result.out and "best at epoch" not in result.out  # nothing about the training
    assert "Zoe" in call("predict", out, "--head", "person 3", "--relation", "before", "--top", 5).out
    printed = json.loads(call("update", run, "--add", facts, "--out", out, "--overwrite", "--format", "json").out)
    assert (printed["new_entities"], printed["added"], printed["metrics"]["mrr"] > 0) == (["Zoe"], 3, True)
    assert printed["command"].startswith("harmonium ") and len(printed["updates"]) == 1
    told = call("info", out)
    (entry,) = json.loads(call("info", out, "--format", "json").out)["run"]["updates"]
    assert f"{entry['change']}; MRR {entry['metrics_before']['mrr']:.3f} before" in told.words
    assert entry["command"].startswith("harmonium ") and entry["command"] in told.words and entry["made"] in told.out
    assert (entry["added"], entry["change"]) == (3, "3 added, 1 new entity, 1 new relation")
    assert entry["metrics_before"] == Run.load(run).metrics
    assert 'update 1.change,"3 added, 1 new' in call("info", out, "--format", "csv").out
    assert "Updates since" not in call("info", run).out
    undone = call("update", out, "--undo", "--out", tmp_path / "before")
    assert "undone; 0 updates are left" in undone.out, undone.err
    assert Run.load(tmp_path / "before").fingerprint == Run.load(run).fingerprint


def test_an_update_says_where_it_goes(call, run: Path, tmp_path: Path) -> None:
    facts, before = tmp_path / "facts.tsv", Run.load(run).fingerprint
    facts.write_text("Zoe\tnext\tperson 3\n", encoding="utf-8")
    nowhere = call("update", run, "--add", facts)
    assert (nowhere.code, "--overwrite to replace the run itself" in nowhere.err) == (2, True)
    itself = call("update", run, "--add", facts, "--out", run)
    assert (itself.code, "exists" in itself.err) == (2, True)
    nothing = call("update", run, "--out", tmp_path / "new")
    assert (nothing.code, "nothing to update" in nothing.err) == (2, True)
    assert Run.load(run).fingerprint == before and not (tmp_path / "new").exists()


def test_export_refuses_to_overwrite(call, run: Path, tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.npz"
    assert call("export", run, vectors).out == f"written: {vectors}\n"
    again = call("export", run, vectors)
    assert (again.code, "--overwrite" in again.err) == (2, True)
    assert call("export", run, vectors, "--overwrite").code == 0
