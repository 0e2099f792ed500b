"""RDF through pyoxigraph: N-Triples, Turtle, N-Quads, TriG, RDF/XML, N3, JSON-LD; one file or train.nt (valid, test).

rdfs:label and skos:prefLabel become labels: in the language asked for, else without language, else English, else any.
Other literals are skipped and counted, or kept as entities. A named graph urn:harmonium:split:test puts facts into that
split. Names that are not IRIs are written as urn:harmonium:name:... and read back unchanged. A weight stated about a
statement (`<< s p o >> :confidence 0.3`) or about the named graph of a fact is the weight of the fact: annotations.py.
"""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, unquote

import numpy as np
import polars as pl

from harmonium.data.compressed import create_file, strip_compression
from harmonium.data.formats.format import Format
from harmonium.data.formats.rdf.annotations import REIFIES
from harmonium.data.formats.rdf.statements import LABEL_PREDICATES, NAME_PREFIX, NAMESPACE, Statements, pyoxigraph
from harmonium.data.formats.tab_files import split_files
from harmonium.data.graph import SPLITS, Graph, Note
from harmonium.data.names import clean_name
from harmonium.data.tables.columns import COLUMNS, WEIGHT
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.source import Source
from harmonium.data.triples import Triples
from harmonium.errors import HarmoniumError
from harmonium.runtime.limited_process import Limits, stream

SUFFIXES = (".nt", ".ttl", ".nq", ".trig", ".rdf", ".owl", ".n3", ".jsonld")
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
GRAPH_COLUMN = "graph"  # the column of the number of a fact's named graph
READER_MEMORY = 1 << 28  # bytes that the reading process may use, however small the file is


def read(path: Path, options: Options) -> Source:
    name, _, files = split_files(path, SUFFIXES)
    facts = StatementCollector(options)
    arguments = {
        "files": {split: str(file) for split, file in files.items()},
        "splits": SPLITS, "literals": options.literals, "language": options.language, "skip_lines": options.on_bad == "skip",
        "weight": options.weight_column,
    }  # fmt: skip
    reader, limits = "harmonium.data.formats.rdf.statements:read_files", Limits.of(files.values(), READER_MEMORY)
    for message, *rows in stream(reader, arguments, limits, str(path)):
        facts.receive(json.loads(message), rows)
    return facts.source(name, str(path))


class StatementCollector(Statements):
    """RDF statements as a Source; they are added one by one, or received from the process that parses a file."""

    def __init__(self, options: Options) -> None:
        super().__init__(SPLITS, options.literals, options.language)
        self.notes: list[Note] = []
        self.weight, self.weighted = options.weight_column, AnnotatedFacts()
        self.bad_rows = SkippedRows(options.on_bad)

    def receive(self, message: dict[str, Any], rows: Sequence[bytes]) -> None:
        """Add what `read_files` sent: new names, then facts of each split, in the order of `rows`; finally weights."""
        if "graphs" in message:
            self.weighted = AnnotatedFacts.of(rows, dict(message["graphs"]))
            return
        for words, names in (
            (self.entities, message.get("entities", ())),
            (self.relations, message.get("relations", ())),
        ):
            words.update(zip(names, range(len(words), len(words) + len(names)), strict=True))
        for facts, content in zip(self.rows.values(), rows, strict=False):
            facts.frombytes(content)
        self.labels.update({name: ((0, 0), label) for name, label in message.get("labels", {}).items()})
        self.skipped.update(message.get("skipped", {}))
        for file, reason, count, examples in message.get("bad_lines", ()):
            self.bad_rows.add(file, reason, count, {f":{number}": text for number, text in examples})

    def source(self, name: str, location: str) -> Source:
        if self.annotations.deferred:  # statements were added one by one
            rows, weights, graphs = self.finish()
            self.weighted = AnnotatedFacts.of([rows.tobytes(), weights.tobytes()], graphs)
        columns = [*COLUMNS, GRAPH_COLUMN]
        arrays = {split: np.frombuffer(rows, np.int64).reshape(-1, 4) for split, rows in self.rows.items()}
        tables = {split: pl.DataFrame(rows, schema=columns) for split, rows in arrays.items()}
        tables, notes = self.weighted.join(tables)
        if self.weight is not None and not self.weighted.is_any:
            raise HarmoniumError(
                f"{location}: no statement about a fact or its graph has the predicate '{self.weight}'; name another one "
                "with --weight-column, or drop this option"
            )
        if not any(map(len, tables.values())) and self.bad_rows.total:
            raise self.bad_rows.nothing_left(location)
        if not any(map(len, tables.values())):
            raise HarmoniumError(f"{location}: no facts between entities in it ({dict(self.skipped) or 'it is empty'})")
        skipped = [Note(f"skipped {count:,} {kind}", "skipped", "", count) for kind, count in self.skipped.items()]
        entities, relations = list(self.entities), list(self.relations)
        labels = {name: label for name, (_, label) in self.labels.items()}
        return Source(
            name,
            {split: table for split, table in tables.items() if len(table)},
            entities,
            relations,
            _readable(entities, labels),
            _readable(relations, labels),
            [*self.notes, *skipped, *notes],
            self.bad_rows,
        )


@dataclass(frozen=True)
class AnnotatedFacts:
    """Facts with weights of their own, and the weights of graphs by number."""

    facts: pl.DataFrame | None = None  # split (position in SPLITS), head, relation, tail, weight
    graphs: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: Sequence[bytes], graphs: Mapping[int, float]) -> Self:
        """From buffers of (split, head, relation, tail) rows and of their weights."""
        ids = np.frombuffer(columns[0], np.int64).reshape(-1, 4)
        weights = pl.Series(WEIGHT, np.frombuffer(columns[1], np.float64))
        return cls(pl.DataFrame(ids, schema=["split", *COLUMNS]).with_columns(weights), graphs)

    @property
    def is_any(self) -> bool:
        return bool(self.graphs) or (self.facts is not None and len(self.facts) > 0)

    def join(self, tables: dict[str, pl.DataFrame]) -> tuple[dict[str, pl.DataFrame], list[Note]]:
        """Add a column of weights to tables of facts: a fact's own weight, else that of its graph, else 1.

        Of several weights for a fact, those stated in its split take precedence, then the largest one. A fact that is only
        quoted in an annotation is added to the facts. Without any weights the tables are returned unchanged.
        """
        if not self.is_any:
            return {split: table.drop(GRAPH_COLUMN) for split, table in tables.items()}, []
        assert self.facts is not None, "facts come with the weights of graphs"
        annotated = self.facts
        best = annotated.group_by(*COLUMNS, maintain_order=True).agg(pl.first("split"), pl.max(WEIGHT))
        asserted = pl.concat([table.select(COLUMNS) for table in tables.values()])
        quoted = best.join(asserted, on=COLUMNS, how="anti", maintain_order="left")
        by_graph = pl.col(GRAPH_COLUMN).replace_strict(self.graphs, default=1.0, return_dtype=pl.Float64)
        weighted = {}
        for number, (split, table) in enumerate(tables.items()):
            in_split = (
                annotated.filter(pl.col("split") == number).group_by(*COLUMNS).agg(pl.max(WEIGHT).alias("in_split"))
            )
            for weights in (best.select(*COLUMNS, WEIGHT), in_split):
                table = table.join(weights, on=COLUMNS, how="left", maintain_order="left")
            table = table.with_columns(pl.coalesce("in_split", WEIGHT, by_graph).alias(WEIGHT)).select(*COLUMNS, WEIGHT)
            weighted[split] = pl.concat([table, quoted.filter(pl.col("split") == number).select(*COLUMNS, WEIGHT)])
        text = f"{len(quoted):,} facts are stated only in quotes (<< ... >>), with a weight; they are read as facts"
        return weighted, [Note(text, "quoted", "", len(quoted))] * bool(len(quoted))


def _readable(ids: list[str], labels: dict[str, str]) -> dict[str, str]:
    """identifier -> label; an IRI without one gets its last part, if that is unique."""
    last_parts = {
        name: unquote(re.split(r"[#/]", name.rstrip("#/"))[-1]) for name in ids if "://" in name and name not in labels
    }
    uses = Counter([*last_parts.values(), *(labels.get(name, name) for name in ids if name not in last_parts)])
    unique = {name: part for name, part in last_parts.items() if part and uses[part] == 1}
    return {name: labels[name] for name in ids if name in labels} | unique


def iri(name: str) -> Any:
    """The IRI of an identifier; a name that is not an IRI becomes urn:harmonium:name:..."""
    ox = pyoxigraph()
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:\S", name) and not name.startswith(NAMESPACE):
        with contextlib.suppress(ValueError):
            return ox.NamedNode(name)
    return ox.NamedNode(NAME_PREFIX + quote(name, safe=""))


def subject(name: str) -> Any:
    """The blank node or IRI of an identifier."""
    if name.startswith("_:"):
        with contextlib.suppress(ValueError):
            return pyoxigraph().BlankNode(name[2:])
    return iri(name)


def object_term(name: str, label: str | None = None) -> Any:
    """The literal that an identifier encodes (provided that its value is `label`, if given), else its node."""
    ox = pyoxigraph()
    if name.startswith('"'):
        with contextlib.suppress(ValueError, SyntaxError):
            literal = next(iter(ox.parse(f"<a:a> <a:a> {name} .", format=ox.RdfFormat.N_TRIPLES))).object
            if label is None or (clean_name(literal.value) or name) == label:
                return literal
    return subject(name)


TERM_OF_SLOT = {"subject": subject, "predicate": iri, "object": object_term}


def write(graph: Graph, path: Path, splits: Sequence[str], alone: bool) -> None:
    """The facts of these splits, their weights and the labels of everything in them.

    The scope of a blank node is one file, so in the files of a folder blank nodes become urn:harmonium IRIs. N-Quads keep
    the splits as named graphs. A weight is stated about a reifier of the fact (RDF 1.2).
    """
    as_quads = strip_compression(path).suffix == ".nq" and len(splits) > 1
    _serialize(path, _statements(graph, splits, as_quads, subject if alone else iri))


def _statements(
    graph: Graph, splits: Sequence[str], as_quads: bool, node: Callable[[str], Any] = subject
) -> Iterator[Any]:
    ox, labels, all_facts = pyoxigraph(), graph.entities.labels, graph.facts()
    entities = [node(name) for name in graph.entities.ids]
    if labels is not None:  # entities that were literals become literals again, except subjects
        is_head = all_facts.head.bincount(minlength=graph.n_entities).bool().tolist()
        for i, name in enumerate(graph.entities.ids):
            if name.startswith('"') and not is_head[i]:
                entities[i] = object_term(name, labels[i])
    relations = [iri(name) for name in graph.relations.ids]
    is_weighted = any(facts.weight is not None for facts in graph.splits.values())
    repeated = _in_several_splits(all_facts) if is_weighted else set()
    reifier = "harmoniumWeight"
    while any(name.startswith(f"_:{reifier}") for name in graph.entities.ids):
        reifier += "_"
    for split in splits:
        context = [ox.NamedNode(f"{NAMESPACE}split:{split}")] if as_quads else []
        facts, kind = graph.splits[split], ox.Quad if as_quads else ox.Triple
        weights = [1.0] * len(facts) if facts.weight is None else facts.weight.tolist()
        for number, (head, relation, tail) in enumerate(facts.to_rows().tolist()):
            fact = entities[head], relations[relation], entities[tail]
            yield kind(*fact, *context)
            if weights[number] != 1 or (head, relation, tail) in repeated:
                node = ox.BlankNode(f"{reifier}{split}{number}")
                yield kind(node, ox.NamedNode(REIFIES), ox.Triple(*fact), *context)
                yield kind(node, ox.NamedNode(f"{NAMESPACE}weight"), ox.Literal(weights[number]), *context)
    facts = graph.facts(splits)
    used = (graph.entities, entities, facts.to_rows()[:, [0, 2]]), (graph.relations, relations, facts.relation)
    for vocabulary, nodes, ids in used:
        if vocabulary.labels is None:
            continue
        for i in ids.unique().tolist():
            name, label = vocabulary.ids[i], vocabulary.labels[i]
            if (label != name or "://" in name) and not isinstance(nodes[i], ox.Literal):
                yield ox.Triple(nodes[i], ox.NamedNode(LABEL_PREDICATES[0]), ox.Literal(label))


def _in_several_splits(facts: Triples) -> set[tuple[int, ...]]:
    """Facts that occur in several splits, with weights that may differ."""
    rows, counts = facts.to_rows().unique(dim=0, return_counts=True)
    return set(map(tuple, rows[counts > 1].tolist()))


def write_predictions(
    path: Path, triples: Iterable[tuple[str, str, str]], probabilities: Iterable[float | None], run: str
) -> None:
    """Write predicted facts, each as an rdf:Statement with its run and, if known, its probability.

    The facts are described, not asserted: readers decide which ones to trust.
    """
    ox = pyoxigraph()
    if strip_compression(Path(path)).suffix not in (".nt", ".ttl"):
        raise HarmoniumError(f"{path}: predictions are written as .nt or .ttl (.gz, .xz, .zst too)")

    def statements() -> Iterator[Any]:
        for number, (fact, probability) in enumerate(zip(triples, probabilities, strict=True), start=1):
            node = ox.BlankNode(f"prediction{number}")
            yield ox.Triple(node, ox.NamedNode(f"{RDF}type"), ox.NamedNode(f"{RDF}Statement"))
            for (slot, write_term), text in zip(TERM_OF_SLOT.items(), fact, strict=True):
                yield ox.Triple(node, ox.NamedNode(f"{RDF}{slot}"), write_term(text))
            if probability is not None:
                yield ox.Triple(node, ox.NamedNode(f"{NAMESPACE}probability"), ox.Literal(float(probability)))
            yield ox.Triple(node, ox.NamedNode(f"{NAMESPACE}run"), ox.Literal(str(run)))

    _serialize(Path(path), statements())


def _serialize(path: Path, statements: Iterator[Any]) -> None:
    ox = pyoxigraph()
    format = ox.RdfFormat.from_extension(strip_compression(path).suffix[1:])
    with create_file(path) as file:
        ox.serialize(statements, file, format, prefixes={"rdf": RDF, "rdfs": RDFS, "harmonium": NAMESPACE})


FORMAT = Format(
    "rdf", "RDF", "N-Triples, Turtle, N-Quads, TriG, RDF/XML, N3 and JSON-LD.", read=read, suffixes=SUFFIXES, write=write,
    written=(".nt", ".ttl", ".nq"), beside=(), table_options=("weight_column",), has_labels=True,
)  # fmt: skip
