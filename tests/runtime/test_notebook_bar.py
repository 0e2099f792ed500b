"""A bar in a notebook, and nothing anywhere else."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

import harmonium
from harmonium.runtime.notebook_bar import in_notebook
from small import family


class FakeHandle:
    def __init__(self, shown: list[str]) -> None:
        self.shown = shown

    def update(self, html: str) -> None:
        self.shown.append(html)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a kernel would have displayed."""
    shown: list[str] = []
    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")

    def show(html: str, display_id: bool) -> FakeHandle:
        shown.append(html)
        return FakeHandle(shown)

    vars(ipython).update(get_ipython=lambda: SimpleNamespace(kernel=object()))
    vars(display).update(HTML=str, display=show)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return shown


def test_training_shows_one_bar_in_a_notebook(shown: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert in_notebook()
    harmonium.train(family(), "paper", dim=4, epochs=3)
    assert shown[0].startswith("<progress value=")
    assert any("training: epoch 3, loss" in bar for bar in shown)
    assert "evaluating: 20 of 20 queries" in shown[-1]
    value, most = (shown[-1].split(f'{name}="')[1].split('"')[0] for name in ("value", "max"))
    assert value == most
    assert capfd.readouterr() == ("", "")


def test_no_bar_where_it_is_not_wanted(shown: list[str]) -> None:
    harmonium.train(family(), "paper", dim=4, epochs=1, progress=False)
    steps: list[int] = []
    harmonium.train(family(), "paper", dim=4, epochs=1, progress=lambda now: steps.append(now.step))
    assert steps and not shown


def test_a_script_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    assert not in_notebook()
    harmonium.train(family(), "paper", dim=4, epochs=1)
    assert capfd.readouterr() == ("", "")
