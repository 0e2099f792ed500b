"""The commands add and export."""

from __future__ import annotations

import json
from pathlib import Path


def test_add_a_new_entity(call, run: Path, tmp_path: Path) -> None:
    facts, out = tmp_path / "facts.tsv", tmp_path / "more"
    facts.write_text("Zoe\tnext\tperson 3\nperson 3\tbefore\tZoe\nperson 1\ttwin\tperson 2\n", encoding="utf-8")
    result = call("add", run, facts, "--out", out)
    assert result.out.startswith("1 new entities from 2 facts: Zoe\nnote: 1 "), result.err
    assert f"run folder: {out}" in result.out
    assert "Zoe" in call("predict", out, "--head", "person 3", "--relation", "before", "--top", 5).out
    printed = json.loads(call("add", run, facts, "--out", out, "--overwrite", "--format", "json").out)
    assert (printed["entities"], printed["facts"], printed["metrics"]["mrr"] > 0) == (["Zoe"], 2, True)
    exists = call("add", run, facts, "--out", out)
    assert (exists.code, "--out" in exists.err) == (2, True)
    facts.write_text("Zoe\tknows\tperson 3\n", encoding="utf-8")
    unknown = call("add", run, facts, "--out", tmp_path / "new")
    assert (unknown.code, "no relation named 'knows'" in unknown.err) == (2, True)


def test_export_refuses_to_overwrite(call, run: Path, tmp_path: Path) -> None:
    vectors = tmp_path / "vectors.npz"
    assert call("export", run, vectors).out == f"written: {vectors}\n"
    again = call("export", run, vectors)
    assert (again.code, "--overwrite" in again.err) == (2, True)
    assert call("export", run, vectors, "--overwrite").code == 0
