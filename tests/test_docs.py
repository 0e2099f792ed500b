"""The site builds without a warning and loads nothing from elsewhere; what its pages show is true of the program."""

from __future__ import annotations

import ast
import gzip
import importlib.util
import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import typer

import harmonium
from harmonium import cli
from test_readme import blocks

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
WRITTEN = [DOCS / "index.md", DOCS / "tutorial.md", DOCS / "glossary.md", DOCS / "doctor.md", *DOCS.glob("how-to/*.md")]
COMMANDS = typer.main.get_command(cli.app)


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "reference" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` does: strictly, so that a bad link, anchor or page without a place in the nav fails."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "WARNING" not in done.stderr, (
        done.stderr
    )  # --quiet would hide warnings from --strict
    return folder


def test_the_site_builds_strictly_and_whole(site: Path) -> None:
    for page in PAGES:
        assert (site / page.relative_to(DOCS)).with_suffix(".html").is_file()
    assert not list(site.rglob("*.py"))
    assert "<mfrac>" in (site / "index.html").read_text(encoding="utf-8")


def test_it_loads_nothing_from_other_machines(site: Path) -> None:
    """Links may lead elsewhere; scripts, styles, pictures and fonts may not come from there."""
    loads = re.compile(
        r'<(?:script|img|iframe|source)[^>]*\ssrc="?(?:https?:)?//|<link(?![^>]*canonical)[^>]*href="?(?:https?:)?//'
    )
    assert loads.search('<script async src="https://x.org/a.js">') and loads.search(
        '<link rel="stylesheet" href="//x.org">'
    )
    for file in site.rglob("*.html"):
        assert not loads.search(file.read_text(encoding="utf-8")), file.name
    for file in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//|@import", file.read_text(encoding="utf-8")), file.name


def test_every_anchor_of_the_site_is_there(site: Path) -> None:
    """mkdocs checks links in Markdown; this checks what came of them, generated pages included."""
    found = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html") if page.name != "404.html"}
    ids = {page: set(re.findall(r'\sid="?([^"\s>]+)', text)) for page, text in found.items()}
    missing, seen = [], 0
    for page, text in found.items():
        for path, anchor in re.findall(r'href="([^":#?]*)#([^"]+)"', text):
            target = (page.parent / path).resolve() if path else page
            seen += 1
            if anchor not in ids.get(target, set()) and anchor not in ("__codelineno", "__skip"):
                missing.append(f"{page.name} -> {path}#{anchor}")
    assert seen > 100
    assert missing == []


def test_every_command_option_name_and_setting_is_in_the_reference(generate: ModuleType) -> None:
    pages = generate.pages()
    for name, command in COMMANDS.commands.items():
        section = re.search(rf"^## {name}\n.*?(?=^## |\Z)", pages["commands"], re.MULTILINE | re.DOTALL)[0]
        assert f"harmonium {name}" in section
        assert all(f"`{option}" in section for p in command.params for option in p.opts if option.startswith("-"))
    for name in harmonium.__all__:
        assert f"harmonium.{name}" in pages["python"] or f"\n### {name}\n" in pages["python"]
    assert "`model.faithfulness` | lambda:" in pages["settings"]
    assert "`hole` | x = " in pages["settings"]


def test_signatures_are_written_as_in_the_source(generate: ModuleType) -> None:
    def known(a: int, *, b: Path = Path("x/y"), c: str = "z", **more: Path | None) -> list[Path]: ...

    assert generate.signature("f", known) == (
        "f(a: int, *, b: Path = Path('x/y'), c: str = 'z', **more: Path | None) -> list[Path]"
    )
    assert generate.signature("Slot", harmonium.Slot).splitlines()[0] == "Slot.HEAD = 'head'"
    assert generate.cell("a | b < c\n d") == "a &#124; b &lt; c d"
    rows = dict(generate.members(harmonium.Composition))
    assert "compose(head: Tensor, relation: Tensor, tail: Tensor) -> Tensor" in rows
    assert {kind.__name__ for kind in generate.results(harmonium.predict)} == {"Answer"}


def shell_lines(page: Path) -> list[str]:
    """The commands that a page shows, in blocks and in the text."""
    text = page.read_text(encoding="utf-8")
    fenced = [line for block in blocks(text) if block.language in ("", "sh") for line in block.text.splitlines()]
    inline = re.findall(r"`(harmonium [a-z]+ [^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    return [line.strip() for line in (*fenced, *inline) if line.strip().startswith("harmonium ")]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.stem)
def test_commands_on_a_page_have_the_arguments_shown(page: Path) -> None:
    """Parsed as the command line would, not run."""
    for line in shell_lines(page):
        words = shlex.split(line, comments=True)[1:]
        if words[0] == "--plugin":
            words = words[2:]
        if len(words) > 1 and words[0] in COMMANDS.commands:
            COMMANDS.commands[words[0]].make_context(words[0], words[1:])
        else:
            assert words[0] in COMMANDS.commands, line


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.stem)
def test_python_on_a_page_calls_what_there_is(page: Path) -> None:
    for block in blocks(page.read_text(encoding="utf-8")):
        for node in ast.walk(ast.parse(block.text)) if block.language == "python" else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("harmonium."):
                function = getattr(harmonium, node.func.attr)
                inspect.signature(function).bind(*node.args, **{word.arg: word.value for word in node.keywords})


COUNTRIES = {"borders", "official language", "continent", "subregion", "capital"}
RUNNER = """
import shlex, subprocess, sys
from pathlib import Path
from harmonium import cli, datasets
from harmonium.demo import SETTINGS

datasets.EMBEDDED["atlas"] = Path("small")
SETTINGS += ["train.epochs=1", "model.entity_dim=16"]
sys.modules["harmonium.demo"].guises_figure = lambda *_: None  # has tests of its own, and takes long
names = {}
for file in sys.argv[1:]:
    text = Path(file).read_text(encoding="utf-8")
    if file.endswith("python.txt"):
        exec(compile(text, "tutorial.md", "exec"), names)
        continue
    for line in text.strip().splitlines():
        if line.startswith("harmonium "):
            cli.app(shlex.split(line)[1:], standalone_mode=False)
        else:
            subprocess.run(line, shell=True, check=True)
"""


def test_the_tutorial_runs(tmp_path: Path) -> None:
    """All of it, from top to bottom in one process, on the part of atlas that is about countries."""
    (tmp_path / "small").mkdir()
    for split in ("train", "valid", "test"):
        packed = (Path(harmonium.__file__).parent / "datasets" / "atlas" / f"{split}.tsv.gz").read_bytes()
        lines = gzip.decompress(packed).decode().splitlines(keepends=True)
        kept = [line for line in lines if line.split("\t")[1] in COUNTRIES]
        (tmp_path / "small" / f"{split}.tsv").write_text("".join(kept), encoding="utf-8")
    found = [b for b in blocks((DOCS / "tutorial.md").read_text(encoding="utf-8")) if b.language in ("sh", "python")]
    assert len(found) >= 8
    files = []
    for number, block in enumerate(found):
        files.append(f"{number}.{block.language}.txt")
        before = "\n" * block.line if block.language == "python" else ""  # so that line numbers are the page's
        (tmp_path / files[-1]).write_text(before + block.text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUNNER, *files],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, env=os.environ | {"HARMONIUM_CACHE": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]
    assert (tmp_path / "runs" / "wider" / "run.json").is_file() and (tmp_path / "runs" / "mine").is_dir()
    assert "Ruritania, subregion, ?" in done.stdout
