"""Self-contained HTML pages: how they are rendered, and written without replacing anything else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harmonium.data.compressed import create_file
from harmonium.errors import HarmoniumError
from harmonium.version import __version__


def render_page(template: str, values: Mapping[str, Any]) -> str:
    """The page as text; everything in `values` is escaped."""
    from jinja2 import Environment, PackageLoader

    loader = PackageLoader("harmonium.analysis", "")
    page = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page.filters |= {"metric": _metric, "percent": _percent, "isfigure": lambda value: hasattr(value, "__html__")}
    return page.get_template(template).render(values, version=__version__)


def check_page(out: str | Path, mark: str, kind: str = "report") -> Path:
    """Refuse, before any work is done, a name that is no page's, or to replace a file without the mark of such pages."""
    page = Path(out)
    if page.suffix not in (".html", ".htm"):
        raise HarmoniumError(f"--out {page}: a {kind} ends in .html")
    try:
        if not page.exists() or (page.is_file() and mark in page.read_text(encoding="utf-8")):
            return page
    except (OSError, ValueError) as error:
        raise HarmoniumError(f"{page}: cannot be read ({error}), so it will not be replaced") from error
    raise HarmoniumError(
        f"{page}: exists and is no {kind} of harmonium, so it will not be replaced; choose another --out"
    )


def write_page(page: Path, text: str) -> None:
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HarmoniumError(f"{page}: cannot be written ({error.strerror}); choose another --out") from error
    with create_file(page) as file:
        file.write(text.encode())


def _metric(value: float, name: str) -> str:
    """Mean ranks with one decimal, shares with three."""
    if value != value:
        return "–"
    digits = {"queries": 0, "mr": 1}.get(name, 3)
    return f"{value:,.{digits}f}".replace("-", "−")


def _percent(probability: float | None) -> str:
    """As the command line prints probabilities."""
    if probability is None:
        return "–"
    return "< 0.1%" if 0 < probability < 0.001 else f"{probability:.1%}"
