"""Graphs by name, path or value (`load`), and written in another format (`convert`)."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from harmonium.data import download, graph_file
from harmonium.data.download import Progress
from harmonium.data.graph import SPLITS, Graph
from harmonium.data.spellings import unite_spellings
from harmonium.data.split import split
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.reading_report import report_reading
from harmonium.data.tables.skipped_rows import OnBad
from harmonium.errors import HarmoniumError
from harmonium.runtime import folders, storage
from harmonium.runtime.untrusted import is_file, is_folder, is_neither, not_regular
from harmonium.runtime.written_files import check_replaceable

if TYPE_CHECKING:
    from harmonium.data.formats.format import Format
    from harmonium.data.tables.source import Source

MIN_CACHED_FACTS = 20_000  # of training: smaller graphs are read as quickly without a cache
CACHE_VERSION = 10  # to be raised when reading changes its result
MIN_REFUSED_RELATIONS = 20  # a table with fewer is never refused because its relations hardly repeat
PREFIXES = (*SPLITS, "entity", "relation")  # one begins the name of every file that formats read in a folder
EMBEDDED = {"atlas": Path(__file__).parent / "atlas"}


def load(
    source: Any,
    *,
    seed: int = 0,
    valid: float | None = None,
    test: float | None = None,
    on_bad: OnBad = "error",
    progress: Progress | None = None,
    **options: Any,
) -> Graph:
    """A Graph from a name, a folder, a file of triples, sparql:URL, bolt://HOST (Neo4j), or from memory: a pandas or
    polars frame, a list of (head, relation, tail), an array of three columns, a dict of columns or a networkx graph.

    Names are cleaned (whitespace, Unicode normal form) and repeated facts dropped; `graph.notes` says how many. A row that
    cannot be used (an empty cell, too few or too many cells, not UTF-8) is an error with file and line; `on_bad="skip"`
    leaves such rows out, with a note. Further `options` (data/tables/reading_options.py) say how to read it: columns,
    label_columns, type_columns, weight_column, delimiter, encoding, header, quotes, unite (other spellings of a
    name: spellings.py), literals, language, query, allow_internal.
    A source without splits is split by `seed` into train, valid and test (see `split`): by default 5 % each for valid and
    test, or up to 10 % of a small graph.
    A name that is not a path is looked up in the folder HARMONIUM_DATA; standard datasets are downloaded if they are not
    there. Large graphs are cached in binary form under HARMONIUM_CACHE (default: ~/.cache/harmonium) until their files
    change.

    >>> harmonium.load("FB15K-237")
    >>> harmonium.load("facts.csv", columns="from,kind,to", on_bad="skip")
    """
    read_with = Options.of({"on_bad": on_bad, **options}, progress)
    if isinstance(source, Graph):
        if options:
            raise HarmoniumError(f"the graph is already in memory; {', '.join(options)} cannot change how")
        return source
    graph, is_whole = _read(source, read_with)
    report_reading(graph.reading, graph.notes)
    if is_whole or len(graph.valid) or len(graph.test):
        return graph
    graph = unite_spellings(graph) if read_with.unite else graph
    if valid == test == 0:
        return graph
    share = split_share(len(graph.train))
    return split(graph, seed=seed, valid=share if valid is None else valid, test=share if test is None else test)


def _read(source: Any, options: Options) -> tuple[Graph, bool]:
    """The graph of a source before splitting, and whether the source defines its splits."""
    if not isinstance(source, str | os.PathLike):
        from harmonium.data.tables import in_memory

        return _encode(in_memory.read, source, options), False
    if (server := registry().server(source)) is not None:
        return _encode(server.read, str(source), options), False
    path = locate(source, options.progress)
    if path.is_dir() and folders.is_finished(path):
        raise HarmoniumError(
            f"{source} is a run, not a graph: harmonium.Run.load opens it, and its .graph is the graph"
        )
    if path.suffix == graph_file.SUFFIX and path.is_file():
        options.refuse_table_options(path)
        return graph_file.load(path), True
    return _load_path(path, options), path.is_dir() and has_splits(path)


def read_graph(source: Any, **options: Any) -> Graph:
    """How commands read a graph: `load`, but unusable rows are skipped and spellings united, with notes that say how many.

    Rows of a folder are not skipped, as a program wrote it. A table whose relations hardly ever repeat is an error, as it
    is not a list of facts.
    """
    if isinstance(source, Graph):
        return load(source, **options)
    is_name = isinstance(source, str | os.PathLike) and not is_server(source)
    if not (is_name and locate(source).is_dir()):
        options.setdefault("on_bad", "skip")
    graph = load(source, **{"unite": True, **options})
    n_facts = sum(map(len, graph.splits.values()))
    if graph.n_relations > max(MIN_REFUSED_RELATIONS, n_facts / 2):
        head, relation, tail = graph.names_of(graph.train[:1])[0]
        raise HarmoniumError(
            f"{source}: {graph.n_relations:,} relations for {n_facts:,} facts, so nothing can be learned about them: is "
            f"'{relation}' a relation between '{head}' and '{tail}'? Choose --columns head,relation,tail by name or number"
        )
    return graph


def registry() -> ModuleType:
    """The registry of formats, imported on first use because importing the formats is slow."""
    from harmonium.data.formats import registry

    return registry


def is_server(source: object) -> bool:
    """Whether a source is the address of a server: sparql:URL, bolt://HOST or neo4j://HOST."""
    return registry().server(source) is not None


def graph_name(source: str | os.PathLike[str]) -> str:
    """A short name of a graph, for its run folder: facts for data/facts.csv.gz, the database for bolt://HOST/DATABASE."""
    if (server := registry().server(source)) is not None:
        return re.sub(r"[^\w.-]", "_", server.graph_name(str(source)))
    return Path(source).absolute().name.split(".")[0]


def has_splits(folder: Path) -> bool:
    """Whether a folder has a file of training facts; what other tools write has not."""
    return any(file.name.startswith("train") for file in folder.iterdir())


def split_share(n_facts: int) -> float:
    """The default share of valid and of test: 5 %, or as much as gives 50 facts, but no more than 10 %."""
    return min(max(0.05, round(50 / max(n_facts, 1), 3)), 0.1)


def convert(
    source: Any,
    out: str | Path,
    to: str | None = None,
    *,
    valid: float = 0,
    test: float = 0,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Graph:
    """Write a graph in another format, with its splits and names; a source without splits can be split on the way.

    `out` is one file (its suffix is the format) or a folder of splits in the format `to`; `options` are those of `load`.
    `overwrite` replaces that file, or in a folder the files that an earlier call wrote; files of others are never removed.

    >>> harmonium.convert("facts.csv", "facts", columns="from,kind,to", valid=0.05, test=0.05)
    """
    Options.of(options)  # check them before the work begins
    out = Path(out)
    if not overwrite and (is_file(out) or (is_folder(out) and any(out.iterdir()))):
        raise HarmoniumError(f"{out} exists; choose another name, or replace it with --overwrite")
    kind = registry().output_format(out, to)
    if is_folder(out):
        check_replaceable(out, registry().is_graph_file)
    graph = load(source, seed=seed, valid=valid, test=test, progress=progress, **options)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        notes = registry().write(graph, out, kind)
    except OSError as error:
        raise HarmoniumError(f"{out}: cannot be written ({error.strerror or error})") from error
    return dataclasses.replace(graph, notes=(*graph.notes, *notes))


def locate(name_or_path: str | os.PathLike[str], progress: Progress | None = None) -> Path:
    """The folder or file of a graph: embedded, a path, a name in HARMONIUM_DATA, or a standard dataset, downloaded."""
    name, path = str(name_or_path), Path(name_or_path)
    if name in EMBEDDED:
        return EMBEDDED[name]
    data_folder = os.environ.get("HARMONIUM_DATA")
    for location in (path, *([Path(data_folder) / path] if data_folder else [])):
        if is_file(location) or is_folder(location):
            return location
        if is_neither(location):
            raise not_regular(location)
    dataset = download.find(name)
    if dataset is not None:
        local = _local_copy(dataset, data_folder)
        return local or download.fetch(dataset, storage.cache_folder() / "datasets", progress)
    where = f" (nor in HARMONIUM_DATA={data_folder})" if data_folder else ""
    raise HarmoniumError(
        f"no graph at '{path}'{where}; give a folder with train.txt, a file of head TAB relation TAB tail lines, "
        f"or a name: {', '.join((*EMBEDDED, *download.standard_datasets()))}"
    )


def _local_copy(dataset: str, data_folder: str | None) -> Path | None:
    """The folder in HARMONIUM_DATA whose name is a spelling of this standard dataset."""
    if not data_folder or not Path(data_folder).is_dir():
        return None
    folders_there = (folder for folder in Path(data_folder).iterdir() if folder.is_dir())
    return next((folder for folder in folders_there if download.find(folder.name) == dataset), None)


def _load_path(path: Path, options: Options) -> Graph:
    """Load a graph from its cache or, failing that, from its files, and cache it.

    The name of a cache is a hash of the names, sizes and contents of the files and of the options. Contents are hashed only
    where a cache with the right sizes exists, as that takes a second per gigabyte.
    """
    format = registry().detect(path, options)
    files = _files(path, format)
    chosen = dataclasses.replace(options, progress=None, unite=False)  # names are united after reading
    key = storage.digest(repr((CACHE_VERSION, path.name, _sizes(files), chosen)).encode(errors="replace"))
    if any(storage.cache_folder().glob(f"{key}.*")):
        with contextlib.suppress(HarmoniumError):  # a damaged cache, or one of other contents
            return graph_file.load(_cache_path(key, files))
    before = _times(files)
    graph = _encode(registry().read, path, options)
    if len(graph.train) >= MIN_CACHED_FACTS:
        cached = _cache_path(key, files)
        if _times(files) == before == _times(_files(path, format)) and _write_cache(graph, cached):
            return graph_file.load(cached)
    return graph


def _files(path: Path, format: Format) -> list[Path]:
    """All files that a format may read for a path."""
    if path.is_file():
        others = [file for pattern in format.beside for file in path.parent.glob(pattern)]
    else:
        others = [file for file in path.iterdir() if file.name.startswith(PREFIXES) or not has_splits(path)]
    return sorted(file for file in {path, *others} if file.is_file())


def _sizes(files: Sequence[Path]) -> list[tuple[str, int]]:
    return [(file.name, file.stat().st_size) for file in files]


def _times(files: Sequence[Path]) -> list[tuple[str, int, int]]:
    """Path, mtime and ctime of each file; ctime, unlike mtime, cannot be set by a user."""
    return [(str(file), file.stat().st_mtime_ns, file.stat().st_ctime_ns) for file in files]


def _cache_path(key: str, files: Sequence[Path]) -> Path:
    try:
        contents = storage.digest("".join(map(storage.file_digest, files)).encode())
    except OSError as error:
        raise HarmoniumError(f"{error.filename}: cannot be read ({error.strerror})") from error
    return storage.cache_folder() / f"{key}.{contents[:32]}{graph_file.SUFFIX}"


def _encode(read: Callable[[Any, Options], Source], source: Any, options: Options) -> Graph:
    from harmonium.data.tables.encode import encode

    return encode(read(source, options))


def _write_cache(graph: Graph, cached: Path) -> bool:
    """Write the cache atomically; False if it cannot be written, which is not an error."""
    with contextlib.suppress(OSError):
        cached.parent.mkdir(parents=True, exist_ok=True)
        for leftover in cached.parent.glob(f"{cached.stem}.*.draft"):  # of processes that were killed
            if not folders.is_alive(int(leftover.suffixes[-2][1:])):
                leftover.unlink()
        temporary = cached.with_suffix(f".{os.getpid()}.draft")
        with temporary.open("wb") as file:
            file.writelines(graph_file.parts(graph))
        temporary.replace(cached)
        return True
    return False
