"""Results that show themselves: as HTML in a notebook, as text when printed, in one line as `repr`.

HTML and text come from the functions that print results in a terminal (cli/display), so that there is one
place where a result is laid out. docs/decisions/016-methods-of-a-run.md says why this module may reach them.
"""

from __future__ import annotations

LONGEST = 240  # characters of a repr


class Displayed:
    """A result with a display."""

    def _repr_html_(self) -> str:
        from harmonium.cli.display.notebook import to_html

        return to_html(self)

    def __str__(self) -> str:
        from harmonium.cli.display.notebook import to_text

        return to_text(self)


def one_line(result: object, *parts: object) -> str:
    """A repr such as <Plan atlas: about 12 s>: the class, and what matters most, on one short line."""
    from harmonium.runtime.untrusted import harmless

    text = harmless(", ".join(str(part) for part in parts if part not in (None, "")))
    return f"<{type(result).__name__} {text if len(text) <= LONGEST else text[: LONGEST - 3] + '...'}>"
