"""Choose the device that computes, and its number of threads."""

import os

import torch

from harmonium.errors import HarmoniumError

ALWAYS_ALLOWED_THREADS = 64


def use_threads(count: int) -> None:
    """Compute with this many CPU threads, or as many as there are processors (or 64) if that is less.

    Each thread reserves memory for its stack, and the process ends when that fails.
    """
    torch.set_num_threads(min(count, max(ALWAYS_ALLOWED_THREADS, os.cpu_count() or 1)))


def pick_device(name: str) -> torch.device:
    """The device of a name such as cpu, cuda or cuda:1; auto: a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()  # it exists and computes
    except (RuntimeError, AssertionError) as error:
        raise HarmoniumError(f"device '{name}' is not available ({str(error).splitlines()[0]})") from error
    return device
