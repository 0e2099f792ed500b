"""One version: of the package, of what it prints, of the citation and of the latest release in the changelog."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import harmonium
from harmonium.version import __version__

ROOT = Path(__file__).parents[2]


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "harmonium.version.__version__"}
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    releases = re.findall(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert re.search(r"^version: (\S+)$", citation, re.MULTILINE)[1] == releases[0] == __version__
    assert harmonium.__version__ == __version__
