"""CI installs exactly the pinned packages, by version and by checksum."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def normalised(requirement: str) -> str:
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-").replace(".", "-")


def direct_requirements() -> set[str]:
    """The packages that `.[dev]` names, including those of the extras it contains."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [part for extra in project["optional-dependencies"].values() for part in extra]
    return {normalised(part) for part in (*project["dependencies"], *extras)} - {"harmonium"}


def test_the_lock_agrees_with_the_constraints_and_is_complete() -> None:
    pins = re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    pinned = {normalised(package): version for package, version in pins}
    locked = {}
    for line in (ROOT / "requirements.lock").read_text().splitlines()[1:]:
        package, version = re.fullmatch(r"(\S+)==(\S+) --hash=sha256:[0-9a-f]{64}", line).groups()
        locked[normalised(package)] = version
    differing = {package: version for package, version in locked.items() if pinned.get(package, version) != version}
    assert differing == {}
    assert direct_requirements() - locked.keys() == {"torch"}, "run `make lock`"
    assert "torch" in pinned
