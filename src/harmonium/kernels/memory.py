"""How the C library and the system hand out memory: what training asks of them, and what a server does."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # numbers that glibc's mallopt knows these by


@cache
def keep_freed_memory() -> None:
    """Ask the C library not to hand freed blocks back to the system between steps, only to ask for them again.

    Every step allocates tables of the same sizes; fresh pages cost more than the arithmetic on them. glibc only.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, -1)  # never


def give_back_freed_memory() -> None:
    """The opposite, for good: a server with many threads would keep the most that each of them ever used."""
    keep_freed_memory()  # done once, it is not done again
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_MAX, 1 << 16)
        library.mallopt(M_MMAP_THRESHOLD, 1 << 20)  # also keeps glibc from raising it by itself
        library.mallopt(M_TRIM_THRESHOLD, 1 << 24)
