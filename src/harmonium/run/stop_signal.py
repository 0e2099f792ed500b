"""Ctrl-C and SIGTERM in a training: the first one waits for the step to end, a second one acts at once.

A signal that this process was started to ignore, as Ctrl-C is in a background job of a script, stays ignored.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from harmonium.runtime.folders import logger

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignal:
    """Whether this process was asked to stop, and by which signal."""

    def __init__(self) -> None:
        self.number: int | None = None

    @property
    def exit_code(self) -> int:
        """The shell's convention: 128 + the number of the signal."""
        return 128 + (self.number or signal.SIGINT)

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Inside the block the first signal is only recorded. Only the main thread can handle signals."""
        previous: dict[int, Any] = {}

        def record(number: int, _: FrameType | None) -> None:
            self.number = number
            restore()
            logger.warning("stopping after this step; repeat to stop at once")

        def restore() -> None:
            for number, handler in previous.items():
                signal.signal(number, handler)

        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number) or signal.SIG_DFL
                if handler != signal.SIG_IGN:
                    previous[number] = handler
                    signal.signal(number, record)
        try:
            yield
        finally:
            restore()
