"""HTML pages in tests: parsed strictly, and printed by a browser."""

from __future__ import annotations

import shutil
from html.parser import HTMLParser

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, such as Debian's package of that name")
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """The tags, the attributes and the words of a page; tags must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []  # tag, name, value
        self.words = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words = f"{self.words} {' '.join(data.split())}".replace("  ", " ")

    def all(self, name: str) -> list[str]:
        """The values of all attributes of a name."""
        return [value or "" for _, attribute, value in self.attributes if attribute == name]
