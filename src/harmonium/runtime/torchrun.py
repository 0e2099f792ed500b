"""Rank and number of processes from the environment variables of torchrun; does not need torch."""

import os


def is_launched() -> bool:
    """Whether torchrun, or a launcher that sets the same variables, started this process with others."""
    return _integer("WORLD_SIZE", 1) > 1 and "RANK" in os.environ


def rank() -> int:
    """Rank of this process; 0 for the main process, and for a single one."""
    return _integer("RANK") if is_launched() else 0


def local_rank() -> int:
    """Rank among the processes of this machine."""
    return _integer("LOCAL_RANK")


def local_size() -> int:
    """Number of processes on this machine."""
    return _integer("LOCAL_WORLD_SIZE", 1)


def restart_count() -> int:
    """How often torchrun has restarted the processes after losing one."""
    return _integer("TORCHELASTIC_RESTART_COUNT")


def _integer(name: str, default: int = 0) -> int:
    return int(os.environ.get(name, default))
