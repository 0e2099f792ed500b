"""Tune glibc's malloc: training keeps freed memory, a server returns it to the system."""

import ctypes
from contextlib import suppress
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # options of glibc's mallopt


@cache
def keep_freed_memory() -> None:
    """Keep freed blocks in the process: every step allocates the same sizes, and fresh pages are expensive."""
    _set_malloc_options({M_MMAP_MAX: 0, M_TRIM_THRESHOLD: -1})  # -1: never


def give_back_freed_memory() -> None:
    """Return freed blocks to the system from now on: otherwise each thread of a server keeps its peak memory."""
    keep_freed_memory()  # cached, so a later call of it changes nothing
    _set_malloc_options({M_MMAP_MAX: 1 << 16, M_MMAP_THRESHOLD: 1 << 20, M_TRIM_THRESHOLD: 1 << 24})


def _set_malloc_options(options: dict[int, int]) -> None:
    with suppress(OSError, AttributeError):  # not glibc
        library = ctypes.CDLL(None)
        for option, value in options.items():
            library.mallopt(option, value)
