"""A progress bar in a notebook: one line of HTML, updated in place. Outside notebooks nothing is shown."""

from __future__ import annotations

import html
import sys
import time
from typing import Any

SECONDS_BETWEEN_UPDATES = 0.2


def in_notebook() -> bool:
    """Whether this code runs in a kernel (Jupyter, Colab, VS Code), which displays HTML."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_shell is not None and hasattr(get_shell(), "kernel")


class NotebookBar:
    """A bar with a text beside it; needs only IPython."""

    def __init__(self) -> None:
        self.handle: Any = None
        self.updated = 0.0

    def update(self, done: float, total: float, text: str) -> None:
        """Show how much is done, at most a few times a second; the end is always shown."""
        now = time.monotonic()
        if self.handle is not None and now - self.updated < SECONDS_BETWEEN_UPDATES and done < total:
            return
        self.updated = now
        from IPython.display import HTML, display

        bar = HTML(f'<progress value="{done}" max="{total}"></progress> {html.escape(text)}')
        if self.handle is None:
            self.handle = display(bar, display_id=True)
        else:
            self.handle.update(bar)
