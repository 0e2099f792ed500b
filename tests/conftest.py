from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from harmonium.data.graph import Graph
from harmonium.training.refit import local_refit
from small import make_graph

settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("repeatable")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Keep the tests of a file in one worker, as they share fixtures, in the order of collection."""
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with the most slow tests first, so that no worker ends up alone with one."""
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])


def pytest_configure() -> None:
    """Ctrl-C works in tests, and in the processes that they start, also where this one began in the background."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def separate_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Tests neither use nor fill the user's cache of graphs, and download nothing."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARMONIUM_CACHE", str(folder))
        patch.setenv("HARMONIUM_OFFLINE", "1")
        yield folder


@pytest.fixture
def quick_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few steps for each update, where it does not matter how well the new facts are learned."""
    monkeypatch.setattr(local_refit, "REFIT_STEPS", 10)


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


@pytest.fixture(scope="session")
def graph() -> Graph:
    """A graph of a few facts."""
    return make_graph()
