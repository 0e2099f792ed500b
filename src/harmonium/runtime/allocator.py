"""What glibc does with freed memory: training keeps it, a server gives it back."""

import ctypes
from contextlib import suppress
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # options of glibc's mallopt


@cache
def keep_freed_memory() -> None:
    """Keep freed blocks in the process: every step allocates the same sizes, and fresh pages are expensive."""
    _set_malloc_options({M_MMAP_MAX: 0, M_TRIM_THRESHOLD: -1})  # -1: never


def give_back_freed_memory() -> None:
    """Return freed blocks to the system, for good: a server's threads would each keep the most they ever used."""
    keep_freed_memory()  # cached: a later call does nothing
    _set_malloc_options({M_MMAP_MAX: 1 << 16, M_MMAP_THRESHOLD: 1 << 20, M_TRIM_THRESHOLD: 1 << 24})


def _set_malloc_options(options: dict[int, int]) -> None:
    with suppress(OSError, AttributeError):  # not glibc
        library = ctypes.CDLL(None)
        for option, value in options.items():
            library.mallopt(option, value)
