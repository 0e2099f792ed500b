"""The errors a user sees: what was wrong, where, and what to do next."""

import difflib
import functools
import inspect
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, SupportsIndex, TypeVar

ALLOCATION_FAILURES = (  # messages of RuntimeErrors of PyTorch, which has no class for them
    "DefaultCPUAllocator: (can't allocate|not enough) memory"
    "|Storage size calculation overflowed"
    "|CUDA error: out of memory|MPS backend out of memory"
    "|CUBLAS_STATUS_ALLOC_FAILED"
)
KEYWORDS_ELSEWHERE = {  # of other libraries: what the same thing is called here
    **dict.fromkeys(("k", "n", "count", "limit", "n_results", "max_results", "size"), "top"),
    **dict.fromkeys(("path", "output", "filename", "save", "save_to"), "out"),
    **dict.fromkeys(("subject", "source", "heads", "h"), "head"),
    **dict.fromkeys(("predicate", "rel", "r", "relations"), "relation"),
    **dict.fromkeys(("object", "target", "tails", "t"), "tail"),
    **dict.fromkeys(("candidates", "targets"), "among"),
    **dict.fromkeys(("groupby", "group_by", "per"), "by"),
    **dict.fromkeys(("random_state", "random_seed"), "seed"),
    **dict.fromkeys(("verbose", "use_tqdm", "callback"), "progress"),
}
WHOLE_NUMBERS = {"top": 0, "seed": 0, "chunk": 1}  # parameters that are one wherever they occur, and the least
KEYWORDS_OF_ROWS = ("min_probability", "threshold", "min_score", "cutoff")  # that choose rows of a result

R = TypeVar("R")


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
    number = operator.index(value) if isinstance(value, SupportsIndex) and not isinstance(value, bool) else None
    if number is None or not least <= number <= most:
        upper = "" if math.isinf(most) else f" to {most:g}"
        raise HarmoniumError(f"{name} is a whole number from {least}{upper}, not {value!r}")
    return number


def refuse_unknown(keywords: Iterable[str], *known: Iterable[str]) -> None:
    """Refuse keyword arguments that a function does not have; the error names the nearest of those that it has."""
    names = [name for group in known for name in group]
    for keyword in keywords:
        if keyword not in names:
            elsewhere = KEYWORDS_ELSEWHERE.get(keyword)
            near = [elsewhere] if elsewhere in names else difflib.get_close_matches(keyword, names, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(names)}"
            if keyword in KEYWORDS_OF_ROWS:
                hint = "choose among the rows of the result: [row for row in result if row.probability >= 0.5]"
            raise HarmoniumError(f"unknown keyword '{keyword}'; {hint}")


def with_checked_keywords(function: Callable[..., R]) -> Callable[..., R]:
    """The function, with unknown keywords as errors that name the nearest; switches are True or False, counts whole numbers.

    A function with `**keywords` checks their names itself.
    """
    parameters = inspect.signature(function).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    switches = [name for name, parameter in parameters.items() if isinstance(parameter.default, bool)]
    counts = {name: least for name, least in WHOLE_NUMBERS.items() if name in parameters}

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> R:
        if not takes_any:
            refuse_unknown(keywords, parameters)
        for name in switches:
            if type(keywords.get(name, True)).__name__ != "bool":  # that of Python, or of numpy
                raise HarmoniumError(f"{name} is True or False, not {keywords[name]!r}")
        for name, least in counts.items():
            if keywords.get(name) is not None:
                whole_number(name, keywords[name], least)
        return function(*args, **keywords)

    return call


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
