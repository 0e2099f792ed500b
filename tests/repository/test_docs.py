"""The site builds without a warning and loads nothing from elsewhere; the commands and code on its pages work."""

from __future__ import annotations

import ast
import gzip
import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import harmonium
from harmonium.cli.app import app
from harmonium.config.settings import describe
from markdown_blocks import blocks, shell_commands

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "harmonium"
PAGES = sorted(page for page in DOCS.rglob("*.md") if page.parent.name != "reference")  # those written by hand
COMMANDS = typer.main.get_command(app).commands


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` does: strictly, so that a bad link, anchor or page missing from the nav fails."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_strictly_and_whole(site: Path) -> None:
    for page in PAGES:
        assert (site / page.relative_to(DOCS)).with_suffix(".html").is_file()
    assert not list(site.rglob("*.py"))


@pytest.mark.slow
def test_the_site_loads_nothing_from_other_machines(site: Path) -> None:
    """Links may lead elsewhere; scripts, styles, pictures and fonts may not come from there."""
    loads = re.compile(
        r'<(?:script|img|iframe|source)[^>]*\ssrc="?(?:https?:)?//|<link(?![^>]*canonical)[^>]*href="?(?:https?:)?//'
    )
    assert loads.search('<script async src="https://x.org/a.js">')
    for file in site.rglob("*.html"):
        assert not loads.search(file.read_text(encoding="utf-8")), file.name
    for file in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//|@import", file.read_text(encoding="utf-8")), file.name


@pytest.mark.slow
def test_every_anchor_of_the_site_exists(site: Path) -> None:
    """mkdocs checks links in Markdown; this checks the HTML, generated pages included."""
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html") if page.name != "404.html"}
    ids = {page: set(re.findall(r'\sid="?([^"\s>]+)', text)) for page, text in pages.items()}
    missing, checked = [], 0
    for page, text in pages.items():
        for path, anchor in re.findall(r'href="([^":#?]*)#([^"]+)"', text):
            target = (page.parent / path).resolve() if path else page
            checked += 1
            if anchor not in ids.get(target, set()) and anchor not in ("__codelineno", "__skip"):
                missing.append(f"{page.name} -> {path}#{anchor}")
    assert checked > 100
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_on_a_page_parse(page: Path) -> None:
    """Parsed as the command line would, not run."""
    for line in shell_commands(page.read_text(encoding="utf-8")):
        words = shlex.split(line, comments=True)[1:]
        if words[0] == "--plugin":
            words = words[2:]
        assert words[0] in COMMANDS, line
        if len(words) > 1 and "..." not in line:
            COMMANDS[words[0]].make_context(words[0], words[1:])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_on_a_page_calls_existing_functions(page: Path) -> None:
    for block in blocks(page.read_text(encoding="utf-8")):
        for node in ast.walk(ast.parse(block.text)) if block.language == "python" else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("harmonium."):
                function = getattr(harmonium, node.func.attr)
                inspect.signature(function).bind(*node.args, **{word.arg: word.value for word in node.keywords})


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem)
def test_modules_tests_and_settings_on_a_page_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for path in re.findall(r"`((?:test_\w+|[\w-]+(?:/[\w-]+)+)\.py)(?:::\w+)?`", text):
        assert list(ROOT.glob(path)) or list(PACKAGE.rglob(path)) or list((ROOT / "tests").rglob(path)), path
    settings = {key for key, *_ in describe()}
    for setting in re.findall(r"`((?:model|train|evaluate)\.[a-z_0-9]+)", text):
        assert setting in settings or setting == "model.safetensors", setting


COUNTRIES = {"borders", "official language", "continent", "subregion", "capital"}
RUNNER = """
import shlex, subprocess, sys
from pathlib import Path
from harmonium.analysis import figures
from harmonium.data import datasets
from harmonium.cli import demo
from harmonium.cli.app import app

datasets.EMBEDDED["atlas"] = Path("small")
demo.SETTINGS += ["train.epochs=1", "model.entity_dim=16"]
figures.guises_figure = lambda *_: None  # tested elsewhere, and slow
names = {}
for file in sys.argv[1:]:
    text = Path(file).read_text(encoding="utf-8")
    if file.endswith("python.txt"):
        exec(compile(text, "tutorial.md", "exec"), names)
        continue
    for line in text.strip().splitlines():
        if line.startswith("harmonium "):
            app(shlex.split(line)[1:], standalone_mode=False)
        else:
            subprocess.run(line, shell=True, check=True)
"""


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path: Path) -> None:
    """From top to bottom in one process, on the part of atlas that is about countries."""
    (tmp_path / "small").mkdir()
    for split in ("train", "valid", "test"):
        lines = gzip.decompress((PACKAGE / "data" / "atlas" / f"{split}.tsv.gz").read_bytes()).decode().splitlines(True)
        about_countries = [line for line in lines if line.split("\t")[1] in COUNTRIES]
        (tmp_path / "small" / f"{split}.tsv").write_text("".join(about_countries), encoding="utf-8")
    files = []
    for number, block in enumerate(blocks((DOCS / "tutorial.md").read_text(encoding="utf-8"))):
        if block.language in ("sh", "python"):
            files.append(f"{number}.{block.language}.txt")
            before = "\n" * block.line if block.language == "python" else ""  # so that line numbers are the page's
            (tmp_path / files[-1]).write_text(before + block.text, encoding="utf-8")
    assert len(files) >= 8
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUNNER, *files],
        cwd=tmp_path, capture_output=True, text=True, timeout=500, env=os.environ | {"HARMONIUM_CACHE": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]
    assert (tmp_path / "runs" / "wider" / "run.json").is_file() and (tmp_path / "runs" / "mine").is_dir()
    assert "Ruritania, subregion, ?" in done.stdout
