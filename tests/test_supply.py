"""What CI installs is pinned, by version and by checksum, and is all that is asked for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def name(requirement: str) -> str:
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-").replace(".", "-")


def asked_for() -> set[str]:
    """The packages that `.[dev]` names, those of the extras in it too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    dev = [part for part in extras["dev"] if not part.startswith("harmonium[")]
    return {name(part) for part in (*project["dependencies"], *dev, *(p for e in extras.values() for p in e))} - {
        "harmonium"
    }


def test_the_lock_is_what_the_constraints_say() -> None:
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    pins = {name(package): version for package, version in pins.items()}
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    locked = {}
    for line in lines:
        package, version = re.fullmatch(r"(\S+)==(\S+) --hash=sha256:[0-9a-f]{64}", line).groups()
        locked[name(package)] = version
    assert {package: version for package, version in locked.items() if pins.get(package, version) != version} == {}
    assert asked_for() - locked.keys() == {"torch"}, "run `make lock`"
    assert "torch" in pins


def test_ci_installs_by_the_lock() -> None:
    assert "make test LOCKED=1" in (ROOT / ".ci" / "run").read_text()
    assert "--require-hashes --no-deps --requirement requirements.lock" in (ROOT / "Makefile").read_text()
