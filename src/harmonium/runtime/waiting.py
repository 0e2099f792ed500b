"""How the threads of OpenMP wait for each other: asleep, so that a busy neighbour does not stop them for long.

By default a thread that waits spins. Where another process wants the core, it spins until the scheduler takes the core away,
and the thread it waits for may be the one that has none: a training step of 15 ms then takes a second. Threads that sleep
give the core away at once. A user's own setting is kept.
"""

import os
import sys

SPINS = "GOMP_SPINCOUNT"  # of libgomp, which PyTorch's wheels use on Linux
USERS_CHOICE = ("OMP_WAIT_POLICY", SPINS, "KMP_BLOCKTIME")  # any of them


def wait_passively() -> bool:
    """Make waiting threads sleep; only before PyTorch, and with it OpenMP, is loaded. Returns whether that was done."""
    if "torch" in sys.modules or any(name in os.environ for name in USERS_CHOICE):
        return False
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    return True
