"""Files replaced by their manifest: ours alone, and after a failure at any moment none is lost or orphaned."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from harmonium.errors import HarmoniumError
from harmonium.runtime import storage
from harmonium.runtime.written_files import MANIFEST, replace_files


def write(folder: Path, **files: str) -> None:
    with replace_files(folder) as temporary:
        for name, text in files.items():
            (temporary / name).write_text(text)


def contents(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir() if file.name != MANIFEST}


def test_only_earlier_files_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("mine")
    write(tmp_path, a="1", b="1")
    write(tmp_path, b="2", d="2")
    assert contents(tmp_path) == {"b": "2", "c": "mine", "d": "2"}
    with pytest.raises(HarmoniumError, match="c: not written by harmonium"):
        write(tmp_path, c="3")
    assert contents(tmp_path) == {"b": "2", "c": "mine", "d": "2"}


class Killed(BaseException):
    pass


def test_a_kill_at_any_step_neither_loses_nor_orphans_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rename, unlink and removal is made to fail in turn; afterwards the folder can be written again."""
    for step in itertools.count():
        folder = tmp_path / str(step)
        folder.mkdir()
        (folder / "c").write_text("mine")
        write(folder, a="1", b="1")
        calls = itertools.count()

        def counted(original: Any, calls: Any = calls, step: int = step) -> Any:
            def call(*arguments: Any, **options: Any) -> Any:
                if next(calls) >= step:
                    raise Killed
                return original(*arguments, **options)

            return call

        with monkeypatch.context() as patch:
            for name in ("replace", "unlink", "rmdir", "fsync"):
                patch.setattr(os, name, counted(getattr(os, name)))
            try:
                write(folder, b="2", d="2")
                killed = False
            except Killed:
                killed = True
        assert (folder / "c").read_text() == "mine"
        write(folder, b="3", e="3")
        assert contents(folder) == {"b": "3", "c": "mine", "e": "3"}
        if not killed:
            break
    assert step > 8


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "..", "sub/file"])
def test_a_manifest_cannot_name_files_outside_its_folder(tmp_path: Path, name: str) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    outside.write_text("precious")
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "file").write_text("precious")
    files = {name: storage.digest(b"precious"), "a": "0"}
    (folder / MANIFEST).write_bytes(storage.manifest_bytes({"format": 1, "files": files}))
    write(folder, b="2")
    assert (outside.read_text(), (folder / "sub" / "file").read_text()) == ("precious", "precious")


def test_the_manifest_says_what_was_written(tmp_path: Path) -> None:
    write(tmp_path, a="1")
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    assert manifest["files"] == {"a": storage.digest(b"1")}
