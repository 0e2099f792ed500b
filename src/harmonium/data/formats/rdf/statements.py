"""RDF statements as facts, labels and weights. Imports nothing heavy, as files are parsed in a separate process."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, unquote

from harmonium.data.compressed import MAX_LINE, READ_ERRORS, open_bytes, strip_compression
from harmonium.data.formats.rdf.annotations import REIFIES, STAR, Annotations, from_star
from harmonium.data.names import has_line_break, is_empty
from harmonium.errors import HarmoniumError, error_at

PARSE_ERRORS: tuple[type[Exception], ...] = (ValueError, *READ_ERRORS)
CONTENT_ERRORS: tuple[type[Exception], ...] = (RecursionError, *PARSE_ERRORS)
NAMESPACE = "urn:harmonium:"
NAME_PREFIX = f"{NAMESPACE}name:"  # of names that are not IRIs
LABEL_PREDICATES = ("http://www.w3.org/2000/01/rdf-schema#label", "http://www.w3.org/2004/02/skos/core#prefLabel")
STATEMENTS_PER_BATCH = 1 << 17  # facts or labels sent at a time
LINES_PER_BLOCK = 1000  # parsed at a time if bad lines are skipped
MAX_CHECKED_JSONLD = 1 << 26  # bytes of a file whose keys are checked
SHOWN_LINES, SHOWN_CHARACTERS = 3, 60  # of bad lines


def pyoxigraph() -> Any:
    try:
        import pyoxigraph
    except ImportError:
        raise HarmoniumError("RDF needs the package pyoxigraph: pip install 'harmonium[rdf]'") from None
    return pyoxigraph


class Statements:
    """Collects RDF statements: facts as ids, labels as names, weights of facts."""

    def __init__(self, splits: Sequence[str], literals: str, language: str, weight: str | None = None) -> None:
        self.ox, self.literals = pyoxigraph(), literals
        self.languages = [language.lower().split("-")[0], None, "en"]  # of labels, in descending order of preference
        self.entities: dict[str, int] = {}
        self.relations: dict[str, int] = {}
        self.rows = {split: array("q") for split in splits}  # head, relation, tail, number of the graph, head, ...
        self.labels: dict[str, tuple[tuple[int, int], str]] = {}  # identifier -> preference (0 is best), label
        self.skipped: Counter[str] = Counter()
        self.annotations = Annotations(weight)

    def add(self, subject: Any, predicate: Any, object: Any, split: str = "train", graph: str = "") -> None:
        """Add a statement. One that may state a weight is deferred until its subject is known to be a fact or a graph."""
        if isinstance(object, self.ox.Literal) and self.annotations.is_weight(predicate.value):
            statement = subject, predicate, object, split, graph
            self.annotations.deferred.append((identifier(subject), object, statement))
        else:
            self._add(subject, predicate, object, split, graph)

    def _add(self, subject: Any, predicate: Any, object: Any, split: str, graph: str) -> None:
        is_literal = isinstance(object, self.ox.Literal)
        if isinstance(object, self.ox.Triple) and predicate.value == REIFIES and self._is_fact(object):
            fact = identifier(object.subject), identifier(object.predicate), identifier(object.object)
            self.annotations.reified.setdefault(identifier(subject), []).append((fact, split))
        elif isinstance(object, self.ox.Triple) or self._is_reifier(subject):
            self.skipped["statements about statements"] += 1
        elif is_literal and predicate.value in LABEL_PREDICATES:
            self._add_label(identifier(subject), predicate.value, object)
        elif is_literal and self.literals == "skip":
            self.skipped["literal values (literals=keep makes them entities)"] += 1
        else:
            head, relation, tail = identifier(subject), identifier(predicate), identifier(object)
            if is_literal:
                self.labels[tail] = (0, 0), object.value
            self.rows[split].extend((*self.ids(head, relation, tail), self.annotations.graph_number(graph)))

    def ids(self, head: str, relation: str, tail: str) -> tuple[int, int, int]:
        """The ids of a fact; new names get the next ones."""
        return (
            self.entities.setdefault(head, len(self.entities)),
            self.relations.setdefault(relation, len(self.relations)),
            self.entities.setdefault(tail, len(self.entities)),
        )

    def _is_fact(self, triple: Any) -> bool:
        """Whether a quoted triple connects two entities."""
        return not isinstance(triple.object, self.ox.Triple) and (
            self.literals == "keep" or not isinstance(triple.object, self.ox.Literal)
        )

    def _is_reifier(self, subject: Any) -> bool:
        return isinstance(subject, self.ox.BlankNode) and identifier(subject) in self.annotations.reified

    def finish(self) -> tuple[array[int], array[float], dict[int, float]]:
        """Weighted facts (split, head, relation, tail, ...), their weights, and the weights of graphs by number."""
        facts, graphs, others = self.annotations.weights()
        for statement in others:
            self._add(*statement)
        rows, weights, splits = array("q"), array("d"), list(self.rows)
        for fact, split, weight in facts:
            rows.extend((splits.index(split), *self.ids(*fact)))
            weights.append(weight)
        return rows, weights, graphs

    def _add_label(self, name: str, predicate: str, literal: Any) -> None:
        language = literal.language.split("-")[0] if literal.language else None
        rank = self.languages.index(language) if language in self.languages else len(self.languages)
        preference = rank, LABEL_PREDICATES.index(predicate)
        if name not in self.labels or preference < self.labels[name][0]:
            self.labels[name] = preference, literal.value


def identifier(term: Any) -> str:
    """A term as an identifier: an IRI without brackets, a urn:harmonium:name decoded, anything else as in N-Triples."""
    text = str(term)
    if not text.startswith("<"):
        return text
    iri: str = term.value
    if not iri.startswith(NAME_PREFIX):
        return iri
    name = unquote(iri.removeprefix(NAME_PREFIX))
    is_ours = not is_empty(name) and not has_line_break(name) and NAME_PREFIX + quote(name, safe="") == iri
    return name if is_ours else iri  # otherwise two IRIs could become one name


def read_files(
    files: dict[str, str],
    splits: list[str],
    literals: str,
    language: str,
    skip_lines: bool = False,
    weight: str | None = None,
) -> Iterator[list[bytes]]:
    """Parse files into messages of [JSON of new names, facts of each split]; the last ones have weights, labels and counts.

    Bad lines of N-Triples and N-Quads are an error, or are skipped and counted.
    """
    statements, bad_lines = Statements(splits, literals, language, weight), BadLines()
    sent, ox = {"entities": 0, "relations": 0}, pyoxigraph()

    def batch() -> list[bytes]:
        names = {}
        for kind, words in (("entities", statements.entities), ("relations", statements.relations)):
            names[kind] = _last_keys(words, len(words) - sent[kind])
            sent[kind] = len(words)
        rows = [facts.tobytes() for facts in statements.rows.values()]
        statements.rows = {split: array("q") for split in splits}
        return [json.dumps(names, ensure_ascii=False).encode(), *rows]

    first = next(iter(files), "")
    for split, file in files.items():
        statements.skipped.update(keys_without_meaning(Path(file)))
        for number, quad in enumerate(parse(Path(file), bad_lines if skip_lines else None), start=1):
            if split != first:
                quad = _of_its_file(quad, split)
            name = "" if isinstance(quad.graph_name, ox.DefaultGraph) else identifier(quad.graph_name)
            graph = name.removeprefix(f"{NAMESPACE}split:")
            statements.add(quad.subject, quad.predicate, quad.object, graph if graph in splits else split, name)
            if number % STATEMENTS_PER_BATCH == 0:
                yield batch()
    with error_at(", ".join(files.values())):
        rows, weights, graphs = statements.finish()
    yield batch()
    yield [json.dumps({"graphs": list(graphs.items())}).encode(), rows.tobytes(), weights.tobytes()]
    labels = [(name, label) for name, (_, label) in statements.labels.items()]
    for start in range(0, len(labels), STATEMENTS_PER_BATCH):
        yield [json.dumps({"labels": dict(labels[start : start + STATEMENTS_PER_BATCH])}, ensure_ascii=False).encode()]
    yield [json.dumps({"skipped": statements.skipped, "bad_lines": bad_lines.rows()}).encode()]


def _of_its_file(quad: Any, split: str) -> Any:
    """A statement with blank nodes renamed by file, as equal labels in two files mean different nodes."""
    ox = pyoxigraph()

    def renamed(term: Any) -> Any:
        if isinstance(term, ox.BlankNode):
            return ox.BlankNode(f"{split}.{term.value}")
        if isinstance(term, ox.Triple):
            return ox.Triple(renamed(term.subject), term.predicate, renamed(term.object))
        return term

    return ox.Quad(renamed(quad.subject), quad.predicate, renamed(quad.object), renamed(quad.graph_name))


def keys_without_meaning(path: Path) -> Counter[str]:
    """Count the values in JSON-LD that parsers drop because their key is neither an IRI nor defined in a context."""
    counts: Counter[str] = Counter()
    if strip_compression(path).suffix != ".jsonld":
        return counts
    try:
        with open_bytes(path) as file:
            content = json.loads(file.read(MAX_CHECKED_JSONLD))
    except CONTENT_ERRORS:  # parsing the file will report the error
        return counts
    nodes: list[tuple[Any, frozenset[str] | None]] = [
        (content, frozenset())
    ]  # values to visit, each with the terms known at that point (None: all)
    while nodes:
        node, terms = nodes.pop()
        if isinstance(node, list):
            nodes += [(value, terms) for value in node]
        elif isinstance(node, dict):
            terms = _terms(node.get("@context"), terms)
            for key, value in node.items():
                if terms is not None and ":" not in key and not key.startswith("@") and key not in terms:
                    counts[f"values of the key '{key}', which is neither an IRI nor in an @context"] += 1
                elif key != "@context":
                    nodes.append((value, terms))
    return counts


def _terms(context: Any, known: frozenset[str] | None) -> frozenset[str] | None:
    """The known terms together with those that a context defines; None if it defines all (@vocab)."""
    for part in context if isinstance(context, list) else [context]:
        if isinstance(part, str) or (isinstance(part, dict) and part.get("@vocab") is not None):
            return None
        if isinstance(part, dict) and known is not None:
            known |= part.keys()
    return known


def _last_keys(words: dict[str, int], count: int) -> list[str]:
    """The `count` keys added last, in order."""
    newest = reversed(words)
    return [next(newest) for _ in range(count)][::-1]


class _Text:
    """A file that raises an error at zero bytes: RDF has none, but holes in damaged files consist of them."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self.file, self.path = file, path

    def read(self, size: int = -1) -> bytes:
        block = self.file.read(size)
        if b"\0" in block:
            raise HarmoniumError(f"{self.path}: has zero bytes, which RDF never has; is the file damaged?")
        return block


class _StarText(_Text):
    """A text file with RDF-star rewritten as RDF 1.2 while it is read; line numbers stay right where possible."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        super().__init__(file, path)
        self.number, self.rest = 1, b""

    def read(self, size: int = -1) -> bytes:
        while len(self.rest) < size and (line := self.file.readline(MAX_LINE)):
            self.rest += b"".join(from_star([line], self.number))
            self.number += 1
        block, self.rest = self.rest[:size], self.rest[size:]
        if b"\0" in block:
            raise HarmoniumError(f"{self.path}: has zero bytes, which RDF never has; is the file damaged?")
        return block


class BadLines:
    """Lines that cannot be read: counted, with the first of each file and reason as examples."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.examples: dict[tuple[str, str], list[tuple[int, str]]] = {}

    def add(self, file: Path, number: int, reason: str, text: str) -> None:
        key = str(file), reason
        self.counts[key] += 1
        examples = self.examples.setdefault(key, [])
        if len(examples) < SHOWN_LINES:
            examples.append((number, text[:SHOWN_CHARACTERS]))

    def rows(self) -> list[tuple[str, str, int, list[tuple[int, str]]]]:
        """File, reason, number of lines, examples as (line number, text)."""
        return [(*key, count, self.examples[key]) for key, count in self.counts.items()]


def parse(path: Path, bad_lines: BadLines | None = None) -> Iterator[Any]:
    """Parse the statements (quads) of a file by its suffix. In formats of lines, bad ones go to `bad_lines` if given."""
    ox, suffix = pyoxigraph(), strip_compression(path).suffix
    format = ox.RdfFormat.RDF_XML if suffix == ".owl" else ox.RdfFormat.from_extension(suffix.removeprefix("."))
    has_lines = suffix in (".nt", ".nq")
    try:
        with open_bytes(path) as file:
            if has_lines and bad_lines is not None:
                yield from _parse_lines(file, path, format, bad_lines)
            else:
                yield from _parse_text(file, path, format, has_lines)
    except SyntaxError as error:
        advice = '; `--on-bad skip` (in Python: on_bad="skip") leaves out such lines' if has_lines else ""
        raise HarmoniumError(f"{path}:{error.lineno or 1}: not {format.name}: {error.msg}{advice}") from error
    except HarmoniumError:
        raise
    except PARSE_ERRORS as error:
        raise HarmoniumError(f"{path}: cannot be read ({error})") from error


def _parse_text(file: IO[bytes], path: Path, format: Any, has_lines: bool) -> Iterator[Any]:
    """Parse all statements, including lines with `<< s p o >>` as a subject, which RDF 1.2 dropped from RDF-star."""
    ox, count = pyoxigraph(), 0
    try:
        for quad in ox.parse(_Text(file, path), format=format):
            yield quad
            count += 1
    except SyntaxError as error:
        if not has_lines or not _is_star(path, error.lineno or 1):
            raise
        with open_bytes(path) as again:
            yield from islice(ox.parse(_StarText(again, path), format=format), count, None)


def _is_star(path: Path, number: int) -> bool:
    """Whether a line has a quoted statement as its subject, in the syntax of RDF-star."""
    with open_bytes(path) as file:
        line = next(islice(iter(lambda: file.readline(MAX_LINE), b""), number - 1, None), b"")
    return STAR.fullmatch(line) is not None


def _parse_lines(file: IO[bytes], path: Path, format: Any, bad_lines: BadLines) -> Iterator[Any]:
    """Parse the statements of all valid lines; others go to `bad_lines`."""
    ox, number = pyoxigraph(), 0
    while block := [line for _ in range(LINES_PER_BLOCK) if (line := file.readline(MAX_LINE))]:
        block = [b"".join(from_star([line], position)) for position, line in enumerate(block, start=number + 1)]
        try:
            yield from list(ox.parse(b"".join(block), format=format))
        except (SyntaxError, ValueError):
            for position, line in enumerate(block, start=number + 1):
                try:
                    yield from list(ox.parse(line, format=format))
                except (SyntaxError, ValueError):
                    bad_lines.add(path, position, f"not {format.name}", line.decode("utf-8", "replace").strip())
        number += len(block)
