"""The Dockerfile and the conda recipe agree with the package; no image is built here, as that needs a registry.

What the Dockerfile runs is tried in a fresh virtual environment instead, without its downloads.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
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


def test_the_image_is_slim_pinned_and_runs_as_no_root() -> None:
    steps = instructions()
    images = [arguments.split()[0] for name, arguments in steps if name == "FROM"]
    assert images and all(re.fullmatch(r"python:3\.\d+-slim", image) for image in images)
    last = steps[len(steps) - 1 - [name for name, _ in steps][::-1].index("FROM") :]
    assert [arguments for name, arguments in last if name == "USER"] == ["1000"]
    assert ("ENTRYPOINT", '["harmonium"]') in last and ("CMD", '["--help"]') in last
    assert not re.search(r"(?i)password|token|secret", DOCKERFILE)
    assert all("--no-cache-dir" in line for _, line in steps if "pip install" in line)


def test_all_that_is_copied_exists_and_is_let_into_the_build() -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [
        arguments.split()[:-1] for name, arguments in instructions() if name == "COPY" and "--from" not in arguments
    ]
    for source in (source for sources in copied for source in sources):
        assert (ROOT / source).exists() and source in allowed
    needed = {PROJECT["readme"], *PROJECT["license-files"], "pyproject.toml", "src", "constraints.txt"}
    assert needed == set(allowed)


@pytest.mark.slow
def test_the_commands_of_the_image_install_a_working_program(tmp_path: Path) -> None:
    """The RUN lines of the build, in a virtual environment here: packages come from this one instead of an index."""
    (command,) = [arguments for name, arguments in instructions() if name == "RUN" and "venv" in arguments]
    environment = tmp_path / "venv"
    steps = command.replace("/opt/harmonium", str(environment)).split(" && ")
    assert len(steps) == 3
    venv, torch, package = steps
    subprocess.run([sys.executable, *venv.split()[1:]], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    for old in site.glob("setuptools*"):  # which is too old; pip would fetch a newer one
        shutil.rmtree(old)
    here = [folder for folder in sys.path if folder.endswith("site-packages")]
    (site / "here.pth").write_text("\n".join(here) + "\n")
    options = os.environ | {
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "false",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    for step in (torch, package):
        done = subprocess.run(
            step, shell=True, cwd=source_copy(tmp_path), env=options, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr[-2000:]
    program = environment / "bin" / "harmonium"
    done = subprocess.run(
        [program, "--version"], cwd=tmp_path, env=without_path(), capture_output=True, text=True, timeout=60
    )
    assert done.stdout == f"harmonium {__version__}\n", done.stderr


def source_copy(folder: Path) -> Path:
    """The files that .dockerignore lets into the build, elsewhere, as building leaves files behind."""
    copy = folder / "build"
    if not copy.exists():
        copy.mkdir()
        for name in ("pyproject.toml", "constraints.txt", "README.md", "LICENSE", "src"):
            subprocess.run(["cp", "-r", ROOT / name, copy / name], check=True)
    return copy


def without_path() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


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
