"""Graphs in and out: each format is one module with `detect`, `read` and `write`; strings become ids here, once.

A format returns a `Source`: tables of names (or of ids, when it brings its own vocabulary), one per split.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path

import numpy as np
import polars as pl

from harmonium.errors import HarmoniumError
from harmonium.formats.stream import Column, Numbering, chosen, interleaved, repeated
from harmonium.graph import SPLITS, Graph, Slot, Triples, Vocabulary

COLUMNS = [slot.value for slot in Slot]
BREAKS = r"[\t\r\n]+"  # become one space in names, which are written as lines elsewhere
FORMATS = ("openke", "libkge", "rdf", "parquet", "csv", "tsv")  # the first that recognises a path reads it
FOLDERS = ("openke", "libkge")  # always a folder; the others below may also be one file
WRITERS = {"tsv": "tsv", "txt": "tsv", "csv": "csv", "parquet": "parquet", "nt": "rdf", "ttl": "rdf", "nq": "rdf"}
NOT_WRITTEN = (
    r"json|jsonld|xlsx?|rdf|xml|owl|n3|trig|zip|tar|tgz|gexf|graphml"  # endings that mean a file, not a folder
)


@dataclass(frozen=True)
class Options:
    """How to read what does not say it itself."""

    columns: Sequence[str] | str | None = None  # head, relation and tail of a table, by name or number from 1
    separator: str | None = None  # of separated text
    header: bool | None = None  # whether the first line is one; None: when it names head, relation and tail
    quotes: bool | None = None  # whether " quotes; None: unless tabs separate
    literals: str = "skip"  # RDF values such as numbers and texts: skip, or keep them as entities
    language: str = "en"  # of RDF labels, where there are several
    query: str | None = None  # SELECT of head, relation and tail, for a SPARQL endpoint
    watch: Callable[[int], object] | None = None  # told how many bytes of text were read

    def __post_init__(self) -> None:
        if self.columns is not None:
            names = self.columns.split(",") if isinstance(self.columns, str) else self.columns
            object.__setattr__(self, "columns", tuple(str(name).strip() for name in names))
            if len(self.columns) != 3:
                raise HarmoniumError(f"columns are three: head,relation,tail; given: {','.join(self.columns)}")
        if self.literals not in ("skip", "keep"):
            raise HarmoniumError(f"literals are skip or keep, not '{self.literals}'")
        if self.separator is not None:
            words = {"tab": "\t", "\\t": "\t", "space": " "}
            object.__setattr__(self, "separator", words.get(self.separator, self.separator))
            if len(self.separator) != 1 or self.separator in '"\r\n':
                raise HarmoniumError(f"a separator is one character (or tab, space), not '{self.separator}'")


@dataclass(frozen=True)
class Source:
    """What a format found: `splits` are tables head, relation, tail of String, or of ids into the vocabularies."""

    name: str
    splits: dict[str, pl.DataFrame | Iterable[pl.DataFrame]]  # a table, or one part of it after the other
    entities: list[str] | None = None
    relations: list[str] | None = None
    entity_names: dict[str, str] = field(default_factory=dict)  # identifier -> name for people
    relation_names: dict[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()  # these and the names may grow while the splits are read


def read(path: Path, options: Options | None = None) -> Source:
    """Read a file or folder with the first format that recognises it."""
    options = options or Options()
    if not path.exists():
        raise HarmoniumError(f"{path}: no such file or folder; give a dataset name, a folder or a file of triples")
    for name in FORMATS:
        module = import_module(f"{__name__}.{name}")
        if module.detect(path, options):
            return module.read(path, options)
    found = ", ".join(sorted(p.name for p in path.iterdir())[:8]) or "nothing"
    wanted = "train.txt, .tsv, .csv, .parquet or .nt (or train2id.txt, train.del)"
    raise HarmoniumError(f"{path}: not a graph: expected {wanted}, found {found}")


def encode(source: Source) -> Graph:
    """Names to ids, in order of first appearance (train first); repeated triples are dropped and counted."""
    entities, relations, splits = source.entities, source.relations, {}
    numbering = (Numbering(), Numbering()) if entities is None or relations is None else None
    notes: dict[str, list[str]] = {split: [] for split in SPLITS}
    for split in SPLITS:
        whole = _columns(source.splits.get(split, ()), numbering)
        if split == "train" and not len(whole):
            raise HarmoniumError(f"{source.name}: no facts to train on; some must be of the split train")
        again = repeated(whole)
        if dropped := int(again.sum()):
            notes[split].append(f"{split}: dropped {dropped:,} repeated triples of {len(whole):,}")
        splits[split] = chosen(whole, ~again) if dropped else whole
    if numbering:
        entities, relations = (names.texts() for names in numbering)
    graph = Graph(
        Vocabulary(entities, _labels(entities, source.entity_names), "entity"),
        Vocabulary(relations, _labels(relations, source.relation_names), "relation"),
        **splits,
        name=source.name,
    )
    for split in SPLITS[1:]:
        facts = splits[split]
        if seen := int(graph.answers(Slot.TAIL, ("train",), facts).contain(facts).sum()):
            told = f"{split}: {seen:,} of {len(facts):,} triples are in train too (kept): its metrics flatter"
            notes[split].append(told)
    return replace(graph, notes=(*source.notes, *(note for told in notes.values() for note in told)))


def _columns(tables: pl.DataFrame | Iterable[pl.DataFrame], numbering: tuple[Numbering, Numbering] | None) -> Triples:
    """Tables of names, or without a numbering of ids, as columns of ids."""
    columns = {name: Column() for name in COLUMNS}
    for table in [tables] if isinstance(tables, pl.DataFrame) else tables:
        ids = table
        if numbering:
            if table.select(pl.any_horizontal(pl.all().str.contains(BREAKS).any())).item():
                table = table.with_columns(pl.all().str.replace_all(BREAKS, " "))
            ends = numbering[0](interleaved(table["head"], table["tail"]))
            ids = {"head": ends[::2], "relation": numbering[1](table["relation"]), "tail": ends[1::2]}
        for name, column in columns.items():
            column.add(np.asarray(ids[name], np.int64))
    return Triples(*(column.tensor() for column in columns.values()))


def _labels(ids: list[str], names: dict[str, str]) -> list[str] | None:
    """A name for each identifier, itself where there is none."""
    if not names:
        return None
    names = {re.sub(BREAKS, " ", text): re.sub(BREAKS, " ", name) for text, name in names.items()}
    return [names.get(text, text) for text in ids]


def writable(out: Path, to: str | None = None) -> str:
    """The format that a file's ending or `to` asks for; tsv for a folder when nothing does."""
    from harmonium.formats.files import bare

    ending, folder = bare(out).suffix.removeprefix("."), (*WRITERS, *FOLDERS)
    alone = ending in (*WRITERS, "graph")
    to = to or (ending if alone else "tsv")
    if to not in (*folder, "graph"):
        raise HarmoniumError(f"cannot write '{to}'; there are {', '.join((*folder, 'graph'))}")
    if (alone and to != ending) or (not alone and to == "graph"):
        raise HarmoniumError(f"'{out.name}' and --to {to} disagree; name a folder, or a file that ends in .{to}")
    if ending and not alone and not out.is_dir() and re.fullmatch(NOT_WRITTEN, ending):
        raise HarmoniumError(
            f"cannot write .{ending}; a file ends in .{', .'.join((*WRITERS, 'graph'))}, or name a folder"
        )
    if ending in ("parquet", "graph") and bare(out) != out:
        raise HarmoniumError(f"'{out.name}': a .{ending} file is not compressed once more; leave out {out.suffix}")
    return to


def write(graph: Graph, out: Path, to: str) -> list[str]:
    """Write a graph as one file or as a folder of splits; returns what a user should know."""
    from harmonium import graph_file
    from harmonium.formats.files import bare, create

    splits = [split for split in SPLITS if len(getattr(graph, split))]
    for old in out.iterdir() if out.is_dir() else ():  # of an earlier graph, that would mix with this one
        if re.fullmatch(r"(train|valid|test|entity|relation)(2id|_ids|_names|_strings)?\.[a-z.]+", old.name):
            old.unlink()
    if to == "graph":
        with create(out) as file:
            file.writelines(graph_file.parts(graph))
    elif bare(out).suffix == f".{to}":
        import_module(f"{__name__}.{WRITERS[to]}").write(graph, out, splits, alone=True)
        if len(splits) > 1 and to in ("nt", "ttl"):
            return [f"{out.name}: {', '.join(splits)} are merged; a folder or .nq keeps them apart"]
    elif to in FOLDERS:
        out.mkdir(exist_ok=True)
        import_module(f"{__name__}.{to}").write(graph, out)
    else:
        out.mkdir(exist_ok=True)
        for split in splits:
            import_module(f"{__name__}.{WRITERS[to]}").write(graph, out / f"{split}.{to}", [split], alone=False)
        if WRITERS[to] != "rdf":
            import_module(f"{__name__}.tsv").write_names(graph, out)
    return []
