"""Every relative link of the repository's Markdown leads to a file, and every anchor to a heading."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
SKIPPED = {".git", ".venv", "build", "node_modules", ".hypothesis", "runs"}
PAGES = sorted(
    page
    for page in ROOT.rglob("*.md")
    if not any(part in SKIPPED or part.startswith(".venv") for part in page.relative_to(ROOT).parts)
)


def prose(page: Path) -> str:
    """A page without code."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^(`{3,}).*?^\1\s*$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(`+)(?!`).*?\1", "", text)


def links(page: Path) -> list[str]:
    """Targets of inline links and images, of reference definitions, and of HTML."""
    text = prose(page)
    targets = re.findall(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)", text)
    targets += re.findall(r"^\[[^\]]+\]:\s+<?(\S+?)>?\s*$", text, flags=re.MULTILINE)
    targets += re.findall(r"(?:href|src)=\"([^\"]+)\"", text)
    return [target for target in targets if not re.match(r"[a-z][a-z0-9+.-]*:", target)]


def anchors(page: Path) -> set[str]:
    """The ids of headings as GitHub makes them, and explicit ones."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^(`{3,}).*?^\1\s*$", "", text, flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set(re.findall(r"(?:\bid=\"|\{#)([\w-]+)", text))
    for heading in re.findall(r"^#{1,6}\s+(.*?)\s*#*$", text, flags=re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", heading)
        plain = unicodedata.normalize("NFKC", re.sub(r"\{[^}]*\}", "", plain)).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = sum(1 for known in found if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", known))
        found.add(slug if not number else f"{slug}-{number}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_link_is_dead(page: Path) -> None:
    dead = []
    for link in links(page):
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        is_alive = target.exists() and target.is_relative_to(ROOT)
        if is_alive and anchor and target.suffix == ".md":
            is_alive = anchor in anchors(target)
        if not is_alive:
            dead.append(link)
    assert dead == []


def test_dead_links_are_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('# One two (x)\n[a](gone.md) `[b](code.md)` [c](#one-two-x) <a href="x.html">\n', encoding="utf-8")
    assert links(page) == ["gone.md", "#one-two-x", "x.html"]
    assert anchors(page) == {"one-two-x"}
