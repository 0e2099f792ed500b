"""Fenced code blocks of a Markdown page."""

from __future__ import annotations

import re
from typing import NamedTuple


class Block(NamedTuple):
    language: str
    line: int  # where its text starts
    text: str


def blocks(markdown: str) -> list[Block]:
    matches = re.finditer(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", markdown, re.MULTILINE | re.DOTALL)
    return [Block(match[1], markdown[: match.start(2)].count("\n"), match[2]) for match in matches]


def shell_commands(markdown: str) -> list[str]:
    """Lines that start with `harmonium`, in shell blocks and in inline code."""
    fenced = [line for block in blocks(markdown) if block.language in ("", "sh") for line in block.text.splitlines()]
    prose = re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`(harmonium [a-z]+ [^`\n]+)`", prose)
    return [line.strip() for line in (*fenced, *inline) if line.strip().startswith("harmonium ")]
