"""The environment of a training: versions, commit and device, which are needed to reproduce it."""

import platform
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy
import torch

from harmonium.version import __version__

SOURCE_TREE = Path(__file__).parents[3]


def environment(device: torch.device | str = "cpu") -> dict[str, str]:
    """Versions, commit (in a source tree) and the name of the device."""
    values = {
        "harmonium": __version__,
        "commit": _commit(SOURCE_TREE),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "device": _device_name(torch.device(device)),
    }
    return {key: value for key, value in values.items() if value}


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"CPU, {threads} thread{'s' if threads > 1 else ''}"


@cache
def _commit(tree: Path) -> str:
    """The commit of a source tree, with -dirty if files differ from it; empty for an installed package."""
    if not (tree / ".git").exists():
        return ""
    command = ["git", "--no-optional-locks", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    with suppress(OSError):
        return subprocess.run(command, cwd=tree, capture_output=True, text=True).stdout.strip()
    return ""
