"""OpenMP's threads wait asleep, unless the user has decided, or PyTorch is loaded already."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from harmonium.runtime.waiting import USER_SETTINGS

PRINT = "import os; print(os.environ.get('OMP_WAIT_POLICY'))"


def run(code: str, **settings: str) -> str:
    environment = {key: value for key, value in os.environ.items() if key not in USER_SETTINGS} | settings
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("name", USER_SETTINGS)
def test_what_the_user_has_set_is_kept(name: str) -> None:
    assert run(f"import harmonium; {PRINT}", **{name: "7"}) == ("7" if name == "OMP_WAIT_POLICY" else "None")


def test_openmp_reads_it() -> None:
    """The setting is made before OpenMP starts, which then says what it uses."""
    code = "import harmonium, torch; torch.ones(1000, 1000) @ torch.ones(1000, 1000)"
    environment = {key: value for key, value in os.environ.items() if key not in USER_SETTINGS}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"OMP_DISPLAY_ENV": "true"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if "OMP_WAIT_POLICY" not in done.stderr:
        pytest.skip("this PyTorch does not use an OpenMP that shows its settings")
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in done.stderr
