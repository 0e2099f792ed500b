"""The command `init`: write a commented settings file for a graph."""

from pathlib import Path
from typing import Annotated

from harmonium.cli import console, options
from harmonium.cli.options import argument, option
from harmonium.data.compressed import create_file


def init(
    graph: Annotated[
        str | None, argument("GRAPH", "Dataset name, folder or file of facts; default: the preset's settings alone.")
    ] = None,
    out: Annotated[Path, option("FILE", "Settings file to write (.toml).")] = Path("harmonium.toml"),
    preset: options.Preset = None,
    minutes: options.Minutes = None,
    settings: options.Settings = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Write a settings file for a graph: what `train` would choose from its statistics, with every line explained.

    Sizes come from the number of facts and from the time of a few steps, as in
    `train`; alternatives are not tried. Edit the file, then train with it.

    Example: harmonium init facts.csv --out mine.toml

    Then: harmonium train --config mine.toml --out runs/mine
    """
    from harmonium.training.search.settings_file import check_path, settings_file

    check_path(out, overwrite)
    if graph is not None:
        console.download(graph)
    with console.bar("reading the graph and timing a few steps"):
        text = settings_file(graph, preset, tuple(settings or ()), minutes)
    with create_file(out) as file:
        file.write(text.encode())
    console.say(f"written: {out}")
    data = "" if graph is not None else " --data GRAPH"
    console.say(f"next: edit it, then harmonium train --config {out}{data}")
