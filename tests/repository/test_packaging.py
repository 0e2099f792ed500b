"""The Dockerfile and the conda recipe agree with the package; no image is built here, as that needs a registry.

What the Dockerfile runs is tried in a fresh virtual environment instead, without its downloads.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

from harmonium import __version__

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}


def instructions() -> list[tuple[str, str]]:
    """Instruction and arguments, with continued lines joined."""
    text = re.sub(r"\\\n\s*", " ", re.sub(r"(?m)^\s*#.*\n", "", DOCKERFILE))
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in text.splitlines() if line.strip()]


def test_all_that_is_copied_exists_and_is_let_into_the_build() -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [
        arguments.split()[:-1] for name, arguments in instructions() if name == "COPY" and "--from" not in arguments
    ]
    for source in (source for sources in copied for source in sources):
        assert (ROOT / source).exists() and source in allowed
    needed = {PROJECT["readme"], *PROJECT["license-files"], "pyproject.toml", "src", "constraints.txt"}
    assert needed == set(allowed)


# conda ---------------------------------------------------------------------------------------------------------------


def recipe() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8"))
    return content


def test_the_recipe_has_the_version_and_requirements_of_the_package() -> None:
    content = recipe()
    assert content["schema_version"] == 1 and content["context"]["version"] == __version__
    ours = {}
    for requirement in PROJECT["dependencies"]:
        name, bound = re.match(r"([\w.-]+)(>=[\d.]+)", requirement).groups()
        ours[CONDA_NAMES.get(name, name)] = bound
    theirs = dict(requirement.split() for requirement in content["requirements"]["run"])
    assert theirs.pop("python") == PROJECT["requires-python"]
    assert theirs == ours
    (build,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert build.replace(">=", " >=") in content["requirements"]["host"]
