"""What torchrun tells a process of itself, by its environment; known before anything heavy is imported."""

from __future__ import annotations

import os


def launched() -> bool:
    """Whether torchrun, or what sets the same variables, started this process beside others."""
    return _number("WORLD_SIZE", 1) > 1 and "RANK" in os.environ


def rank() -> int:
    """The number of this process among all; 0 for the one that speaks and writes, or is alone."""
    return _number("RANK") if launched() else 0


def local_rank() -> int:
    """The same among those of this machine."""
    return _number("LOCAL_RANK")


def local_size() -> int:
    """How many were started on this machine."""
    return _number("LOCAL_WORLD_SIZE", 1)


def attempt() -> int:
    """How often torchrun has started the processes again, after one was lost."""
    return _number("TORCHELASTIC_RESTART_COUNT")


def _number(name: str, otherwise: int = 0) -> int:
    return int(os.environ.get(name, otherwise))
