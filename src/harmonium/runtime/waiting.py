"""How the threads of OpenMP wait for each other: asleep, so that a busy neighbour does not stop them for long.

By default a thread that waits spins. Where another process wants the core, it spins until the scheduler takes the core away,
and the thread it waits for may be the one without a core: a training step of 15 ms then takes a second. Threads that
sleep release the core at once. A user's own setting is kept.
"""

import os
import sys

SPIN_COUNT = "GOMP_SPINCOUNT"  # of libgomp, which PyTorch's wheels use on Linux
USER_SETTINGS = ("OMP_WAIT_POLICY", SPIN_COUNT, "KMP_BLOCKTIME")  # if any is set, nothing is changed


def wait_passively() -> bool:
    """Make waiting threads sleep. Works only before PyTorch, and with it OpenMP, is loaded. Returns whether it was done."""
    if "torch" in sys.modules or any(name in os.environ for name in USER_SETTINGS):
        return False
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    return True
