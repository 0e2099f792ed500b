"""RDF through pyoxigraph: N-Triples, Turtle, N-Quads, TriG, RDF/XML, N3, JSON-LD; one file or train.nt (valid, test).

rdfs:label and skos:prefLabel become names, in the language asked for, else without language, else English, else any.
Other literals are skipped and counted, or kept as entities. A named graph urn:harmonium:split:test deals facts to that
split. Names that are no IRIs are written as urn:harmonium:name:..., and read back as they were.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import polars as pl

from harmonium.errors import HarmoniumError
from harmonium.formats import BREAKS, COLUMNS, SPLITS, Options, Source
from harmonium.formats.files import BROKEN, bare, create, find, open_bytes
from harmonium.graph import Graph

ENDINGS = (".nt", ".ttl", ".nq", ".trig", ".rdf", ".owl", ".n3", ".jsonld")
OURS = "urn:harmonium:"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
LABELS = (f"{RDFS}label", "http://www.w3.org/2004/02/skos/core#prefLabel")


def pyoxigraph() -> Any:
    try:
        import pyoxigraph
    except ImportError:
        raise HarmoniumError("RDF needs the package pyoxigraph: pip install 'harmonium[rdf]'") from None
    return pyoxigraph


def detect(path: Path, options: Options) -> bool:
    return bare(path).suffix in ENDINGS if path.is_file() else find(path, "train", ENDINGS) is not None


def read(path: Path, options: Options) -> Source:
    files = {"train": path} if path.is_file() else {s: f for s in SPLITS if (f := find(path, s, ENDINGS))}
    facts = Facts(options)
    for split, file in files.items():
        for quad in _parse(file):
            graph = getattr(quad.graph_name, "value", "")
            named = graph.removeprefix(f"{OURS}split:")
            facts.add(quad.subject, quad.predicate, quad.object, named if named in SPLITS else split)
    return facts.source(path.name.split(".")[0] if path.is_file() else path.name, str(path))


def _parse(path: Path) -> Iterator[Any]:
    ox, ending = pyoxigraph(), bare(path).suffix
    format = ox.RdfFormat.RDF_XML if ending == ".owl" else ox.RdfFormat.from_extension(ending.removeprefix("."))
    try:
        with open_bytes(path) as file:
            yield from ox.parse(file, format=format)
    except SyntaxError as error:
        raise HarmoniumError(f"{path}:{error.lineno or 1}: not {format.name}: {error.msg}") from error
    except (*BROKEN, ValueError) as error:
        raise HarmoniumError(f"{path}: cannot be read ({error})") from error


class Facts:
    """Gathers statements: facts as ids, labels as names."""

    def __init__(self, options: Options) -> None:
        self.ox, self.options = pyoxigraph(), options
        self.entities: dict[str, int] = {}
        self.relations: dict[str, int] = {}
        self.rows = {split: array("q") for split in SPLITS}  # head, relation, tail, head, ...
        self.labels: dict[str, tuple[tuple[int, int], str]] = {}  # identifier -> how welcome, name
        self.skipped: Counter[str] = Counter()
        self.notes: list[str] = []

    def add(self, subject: Any, predicate: Any, object: Any, split: str = "train") -> None:
        literal = isinstance(object, self.ox.Literal)
        if not isinstance(subject, self.ox.NamedNode | self.ox.BlankNode) or isinstance(object, self.ox.Triple):
            self.skipped["statements about statements"] += 1
        elif literal and predicate.value in LABELS:
            welcome = (self._welcome(object.language), LABELS.index(predicate.value))
            head = identifier(subject)
            if head not in self.labels or welcome < self.labels[head][0]:
                self.labels[head] = welcome, object.value
        elif literal and self.options.literals == "skip":
            self.skipped["literal values (literals=keep makes them entities)"] += 1
        else:
            head, relation, tail = identifier(subject), identifier(predicate), identifier(object)
            if literal:
                self.labels[tail] = (0, 0), object.value
            ids = (
                self.entities.setdefault(head, len(self.entities)),
                self.relations.setdefault(relation, len(self.relations)),
                self.entities.setdefault(tail, len(self.entities)),
            )
            self.rows[split].extend(ids)

    def _welcome(self, language: str | None) -> int:
        """0 for the language asked for, 1 for none, 2 for English, 3 for any other."""
        order = [self.options.language.lower().split("-")[0], None, "en"]
        language = language.split("-")[0] if language else None
        return order.index(language) if language in order else len(order)

    def source(self, name: str, where: str) -> Source:
        if not any(self.rows.values()):
            raise HarmoniumError(f"{where}: no facts between entities in it ({dict(self.skipped) or 'it is empty'})")
        tables = {split: np.frombuffer(rows, np.int64).reshape(-1, 3) for split, rows in self.rows.items() if rows}
        splits = {split: pl.DataFrame(rows, schema=COLUMNS) for split, rows in tables.items()}
        notes = (*self.notes, *(f"skipped {count:,} {what}" for what, count in self.skipped.items()))
        entities, relations = list(self.entities), list(self.relations)
        names = {identifier: name for identifier, (_, name) in self.labels.items()}
        return Source(name, splits, entities, relations, _named(entities, names), _named(relations, names), notes)


def identifier(term: Any) -> str:
    """A term as one word: an IRI without brackets, a name of ours as it was, anything else as in N-Triples."""
    text = str(term)
    if not text.startswith("<"):
        return text
    name = unquote(term.value.removeprefix(f"{OURS}name:"))
    return re.sub(BREAKS, " ", name) if name and term.value.startswith(f"{OURS}name:") else term.value


def _named(ids: list[str], names: dict[str, str]) -> dict[str, str]:
    """identifier -> label; an IRI without one goes by its last part, where no other has the same name."""
    last = {
        text: unquote(re.split(r"[#/]", text.rstrip("#/"))[-1]) for text in ids if "://" in text and text not in names
    }
    taken = Counter([*last.values(), *(names.get(text, text) for text in ids if text not in last)])
    found = {text: names[text] for text in ids if text in names}
    return found | {text: part for text, part in last.items() if part and taken[part] == 1}


def term(name: str, label: str | None = None) -> Any:
    """The IRI, blank node or (a kept one) literal of an identifier; a name of ours when it is none of them."""
    ox = pyoxigraph()
    try:
        if name.startswith("_:"):
            return ox.BlankNode(name[2:])
        if name.startswith('"') and label is not None and label != name:
            return next(iter(ox.parse(f"<a:a> <a:a> {name} .", format=ox.RdfFormat.N_TRIPLES))).object
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:\S", name) and not name.startswith(OURS):
            return ox.NamedNode(name)
    except (ValueError, SyntaxError):
        pass
    return ox.NamedNode(f"{OURS}name:{quote(name, safe='')}")


def write(graph: Graph, path: Path, splits: Sequence[str], alone: bool) -> None:
    """The facts of these splits and the labels of all they mention; N-Quads keep the splits as named graphs."""
    ox = pyoxigraph()
    quads = bare(path).suffix == ".nq" and len(splits) > 1

    def terms(vocabulary: Any) -> list[Any]:
        return [term(text, vocabulary.labels and vocabulary.labels[i]) for i, text in enumerate(vocabulary.ids)]

    def statements() -> Iterator[Any]:
        entities, relations = terms(graph.entities), [term(text) for text in graph.relations.ids]
        for split in splits:
            context = [ox.NamedNode(f"{OURS}split:{split}")] if quads else []
            for head, relation, tail in getattr(graph, split).rows().tolist():
                subject = (
                    entities[head] if not isinstance(entities[head], ox.Literal) else term(graph.entities.ids[head])
                )
                kind = ox.Quad if quads else ox.Triple
                yield kind(subject, relations[relation], entities[tail], *context)
        facts = graph.facts(splits)
        used = (graph.entities, entities, facts.rows()[:, [0, 2]]), (graph.relations, relations, facts.relation)
        for vocabulary, nodes, ids in used:
            for i in ids.unique().tolist() if vocabulary.labels is not None else ():
                name, label = vocabulary.ids[i], vocabulary.labels[i]
                if (label != name or "://" in name) and not isinstance(nodes[i], ox.Literal):
                    yield ox.Triple(nodes[i], ox.NamedNode(LABELS[0]), ox.Literal(label))

    _save(path, statements())


def write_predictions(
    path: Path, triples: Iterable[tuple[str, str, str]], probabilities: Iterable[float], run: str
) -> None:
    """Facts by identifier that a run believes, each an rdf:Statement with its probability and its run.

    The facts are described, not asserted: a reader takes those it trusts.
    """
    ox = pyoxigraph()
    if bare(Path(path)).suffix not in (".nt", ".ttl"):
        raise HarmoniumError(f"{path}: predictions are written as .nt or .ttl (.gz, .xz, .zst too)")

    def node(name: str) -> Any:
        return ox.NamedNode(name)

    def statements() -> Iterator[Any]:
        for number, (fact, probability) in enumerate(zip(triples, probabilities, strict=True), start=1):
            about = ox.BlankNode(f"prediction{number}")
            yield ox.Triple(about, node(f"{RDF}type"), node(f"{RDF}Statement"))
            for slot, text in zip(("subject", "predicate", "object"), fact, strict=True):
                yield ox.Triple(about, node(f"{RDF}{slot}"), term(text, "" if slot == "object" else None))
            yield ox.Triple(about, node(f"{OURS}probability"), ox.Literal(float(probability)))
            yield ox.Triple(about, node(f"{OURS}run"), ox.Literal(str(run)))

    _save(Path(path), statements())


def _save(path: Path, statements: Iterator[Any]) -> None:
    ox = pyoxigraph()
    prefixes = {"rdf": RDF, "rdfs": RDFS, "harmonium": OURS}
    with create(path) as file:
        ox.serialize(statements, file, ox.RdfFormat.from_extension(bare(path).suffix[1:]), prefixes=prefixes)
