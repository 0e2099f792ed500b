"""Choose the device that computes, and its number of threads."""

import os

import torch

from harmonium.errors import HarmoniumError

ALWAYS_ALLOWED_THREADS = 64  # also on a machine with fewer processors


def use_threads(count: int) -> None:
    """Compute with `count` CPU threads, but at most the number of processors or 64, whichever is larger.

    The limit protects the process: each thread reserves memory for its stack, and the process dies if that fails.
    """
    torch.set_num_threads(min(count, max(ALWAYS_ALLOWED_THREADS, os.cpu_count() or 1)))


def pick_device(name: str) -> torch.device:
    """The device with a name such as cpu, cuda or cuda:1; auto is a GPU if there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()  # raises unless the device exists and works
    except (RuntimeError, AssertionError) as error:
        raise HarmoniumError(f"device '{name}' is not available ({str(error).splitlines()[0]})") from error
    return device
