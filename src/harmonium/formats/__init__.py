"""Graphs in and out: each format is one module with `detect`, `read` and `write`; strings become ids here, once.

A format returns a `Source`: tables of names (or of ids, when it brings its own vocabulary), one per split.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import polars as pl
import torch

from harmonium.errors import HarmoniumError
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
    splits: dict[str, pl.DataFrame]
    entities: list[str] | None = None
    relations: list[str] | None = None
    entity_names: dict[str, str] = field(default_factory=dict)  # identifier -> name for people
    relation_names: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


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
    if not len(source.splits.get("train", ())):
        raise HarmoniumError(f"{source.name}: no facts to train on; some must be of the split train")
    tables = {split: source.splits.get(split, source.splits["train"].clear()) for split in SPLITS}
    entities, relations = source.entities, source.relations
    if entities is None or relations is None:
        one_line = pl.all().str.replace_all(BREAKS, " ")
        tables = {split: table.with_columns(one_line) for split, table in tables.items()}
        everything = pl.concat(tables.values())
        interleaved = everything.select(pl.concat_list("head", "tail").explode()).to_series()
        entities = interleaved.unique(maintain_order=True).to_list()
        relations = everything["relation"].unique(maintain_order=True).to_list()
        kinds = {"head": pl.Enum(entities), "relation": pl.Enum(relations), "tail": pl.Enum(entities)}
        tables = {
            split: table.select(pl.col(c).cast(kinds[c]).to_physical() for c in COLUMNS)
            for split, table in tables.items()
        }
    notes, splits = list(source.notes), {}
    for split, table in tables.items():
        distinct = table.unique(maintain_order=True)
        if len(distinct) < len(table):
            notes.append(f"{split}: dropped {len(table) - len(distinct):,} repeated triples of {len(table):,}")
        seen = len(distinct.join(tables["train"].unique(), on=COLUMNS, how="semi")) if split != "train" else 0
        if seen:
            notes.append(f"{split}: {seen:,} of {len(distinct):,} triples are in train too (kept): its metrics flatter")
        splits[split] = Triples(*(torch.from_numpy(distinct[c].cast(pl.Int64).to_numpy().copy()) for c in COLUMNS))
    return Graph(
        Vocabulary(entities, _labels(entities, source.entity_names), "entity"),
        Vocabulary(relations, _labels(relations, source.relation_names), "relation"),
        **splits,
        name=source.name,
        notes=tuple(notes),
    )


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
            file.write(graph_file.to_bytes(graph))
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
