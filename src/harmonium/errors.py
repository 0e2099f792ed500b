"""The errors a user sees: what was wrong, where, and what to do next."""

import difflib
import math
import operator
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import SupportsIndex

ALLOCATION_FAILURES = (  # messages of RuntimeErrors of PyTorch, which has no class for them
    "DefaultCPUAllocator: (can't allocate|not enough) memory"
    "|Storage size calculation overflowed"
    "|CUDA error: out of memory|MPS backend out of memory"
    "|CUBLAS_STATUS_ALLOC_FAILED"
)


class HarmoniumError(ValueError):
    """A mistake in the user's input; the command line prints its message and exits with code 2."""


class PeerError(HarmoniumError):
    """An error that another process of the group reports already."""


class Interrupted(BaseException):
    """Training was stopped by a signal; the command line prints how to resume and exits with `code`."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def whole_number(name: str, value: object, least: int = 0, most: float = math.inf) -> int:
    """The value of a parameter that is a whole number in a range; anything else is an error that names it."""
    number = operator.index(value) if isinstance(value, SupportsIndex) else None
    if number is None or not least <= number <= most:
        upper = "" if math.isinf(most) else f" to {most:g}"
        raise HarmoniumError(f"{name} is a whole number from {least}{upper}, not {value!r}")
    return number


def refuse_unknown(keywords: Iterable[str], *known: Iterable[str]) -> None:
    """Refuse keyword arguments that a function does not have; the error names the nearest of those that it has."""
    names = [name for group in known for name in group]
    for keyword in keywords:
        if keyword not in names:
            near = difflib.get_close_matches(keyword, names, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(names)}"
            raise HarmoniumError(f"unknown keyword '{keyword}'; {hint}")


@contextmanager
def error_at(location: str) -> Iterator[None]:
    """Prefix the message of a HarmoniumError with the location (such as file:line) of its cause."""
    try:
        yield
    except HarmoniumError as error:
        raise HarmoniumError(f"{location}: {error}") from None


def out_of_memory_error(error: Exception, advice: str) -> HarmoniumError:
    """The error to show when memory ran out, with advice; any other error is raised again."""
    import torch  # here, since the command line starts without it

    message = str(error)
    is_memory_error = isinstance(error, MemoryError | torch.OutOfMemoryError)
    if not is_memory_error and not re.search(ALLOCATION_FAILURES, message):
        raise error
    return HarmoniumError(f"out of memory ({(message or 'MemoryError').splitlines()[0]}); {advice}")
