from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("steady")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Keep the tests of a file in one worker, as they share what they train, and start with the longest: e2e."""
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log)


@pytest.fixture
def write_folder(tmp_path: Path):
    """Write a folder of files and return it."""

    def write(files: dict[str, str | bytes], name: str = "graph") -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        for file, text in files.items():
            (folder / file).write_bytes(text if isinstance(text, bytes) else text.encode())
        return folder

    return write
