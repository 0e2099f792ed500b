"""GraphML: one file, or the folder of LightRAG or nano-graphrag (graph_chunk_entity_relation.graphml).

Read as a stream. A document type, with which a small file could describe a huge one, is refused.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from xml.parsers import expat

import polars as pl

from harmonium.data.compressed import BLOCK, READ_ERRORS, open_bytes, strip_compression
from harmonium.data.formats.in_memory import NODE_LABELS
from harmonium.data.formats.links import Link, LinkReader
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.source import Source
from harmonium.data.tables.table import to_source
from harmonium.errors import HarmoniumError

RAG_FILE = "graph_chunk_entity_relation.graphml"  # of LightRAG and nano-graphrag
NODE_TYPES = ("entity_type", "type")
KEPT = (*NODE_LABELS, *NODE_TYPES)  # attributes of nodes; others, such as descriptions, would only take memory
MAX_TEXT = 1 << 24  # characters of an attribute


def detect(path: Path, options: Options) -> bool:
    return strip_compression(path).suffix == ".graphml" if path.is_file() else (path / RAG_FILE).is_file()


def read(path: Path, options: Options) -> Source:
    file = path if path.is_file() else path / RAG_FILE
    reader = LinkReader(str(file), options, SkippedRows(options.on_bad))
    nodes: dict[str, dict[str, str]] = {}
    name = path.absolute().name.split(".")[0]
    tables = {"train": partial(_tables, file, reader, nodes)}
    return to_source(name, tables, str(file), notes=reader.notes, skipped=reader.skipped)


def _tables(file: Path, reader: LinkReader, nodes: dict[str, dict[str, str]]) -> Iterator[pl.DataFrame]:
    reader.skipped.restart(file)
    links = _links(file, nodes)
    for table in reader.tables(links, _types(nodes)):
        labels = [
            pl.Series(f"{end}_name", [_label(nodes, name) for name in table[end]], dtype=pl.String)
            for end in ("head", "tail")
        ]
        yield table.with_columns(labels)


def _types(nodes: dict[str, dict[str, str]]) -> Iterator[tuple[str, str]]:
    """The types of nodes, once all were read."""
    for node, attributes in nodes.items():
        kind = next((attributes[name] for name in NODE_TYPES if attributes.get(name)), None)
        if kind is not None:
            yield node, kind


def _label(nodes: dict[str, dict[str, str]], node: str) -> str:
    """The name of a node; nano-graphrag puts its identifiers in quotes."""
    attributes = nodes.get(node, {})
    return next((attributes[name] for name in NODE_LABELS if attributes.get(name)), node.strip('"'))


def _links(file: Path, nodes: dict[str, dict[str, str]]) -> Iterator[Link]:
    """The edges of a file in order; what it says of its nodes goes into `nodes`."""
    document = _Document(nodes)
    parser = document.parser()
    try:
        with open_bytes(file) as stream:
            while block := stream.read(BLOCK):
                parser.Parse(block)
                yield from document.take()
        parser.Parse(b"", True)
    except READ_ERRORS as error:
        raise HarmoniumError(f"{file}: cannot be read ({error})") from error
    except expat.ExpatError as error:
        raise HarmoniumError(f"{file}:{error.lineno}: not XML ({expat.ErrorString(error.code)})") from error
    except HarmoniumError as error:
        location = "" if str(file) in str(error) else f"{file}:{parser.CurrentLineNumber}: "
        raise HarmoniumError(f"{location}{error}") from error
    except (LookupError, ValueError) as error:  # an encoding that does not exist, or that the parser lacks
        raise HarmoniumError(f"{file}: not XML that can be read ({error}); save it as UTF-8") from error
    if not document.is_graphml:
        raise HarmoniumError(f"{file}: no GraphML: its root is not <graphml>")
    yield from document.take()


@dataclass
class _Document:
    """What the parser has read so far."""

    nodes: dict[str, dict[str, str]]
    keys: dict[str, str] = field(default_factory=dict)  # id of a key -> name of the attribute
    links: list[Link] = field(default_factory=list)
    n_links: int = 0
    is_graphml: bool = False
    is_directed: bool = True  # by default
    owner: dict[str, str] | None = None  # attributes of the current node or edge
    edge: tuple[str, str, bool] | None = None
    key: str | None = None  # of the current attribute
    text: list[str] = field(default_factory=list)
    length: int = 0

    def parser(self) -> expat.XMLParserType:
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        return parser

    def take(self) -> list[Link]:
        links, self.links = self.links, []
        return links

    def _refuse_doctype(self, *_: object) -> None:
        raise HarmoniumError("has a document type, which GraphML does not need; remove it")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        tag = name.rpartition(" ")[2]
        if tag == "graphml":
            self.is_graphml = True
        elif tag == "key":
            self.keys[attributes.get("id", "")] = attributes.get("attr.name", attributes.get("id", ""))
        elif tag == "graph":
            self.is_directed = attributes.get("edgedefault") != "undirected"
        elif tag == "node":
            self.owner = self.nodes.setdefault(attributes.get("id", ""), {})
        elif tag == "edge":
            is_directed = attributes.get("directed", str(self.is_directed)).casefold() == "true"
            self.edge = attributes.get("source", ""), attributes.get("target", ""), is_directed
            self.owner = {}
        elif tag == "data":
            self.key, self.text, self.length = attributes.get("key", ""), [], 0

    def _end(self, name: str) -> None:
        tag = name.rpartition(" ")[2]
        if tag == "data" and self.key is not None:
            attribute = self.keys.get(self.key, self.key)
            if self.owner is not None and (self.edge is not None or attribute in KEPT):
                self.owner[attribute] = "".join(self.text)
            self.key = None
        elif tag == "edge" and self.edge is not None:
            self.n_links += 1
            head, tail, is_directed = self.edge
            self.links.append(Link(head, tail, self.owner or {}, is_directed, f": edge {self.n_links}"))
            self.edge = self.owner = None
        elif tag == "node":
            self.owner = None

    def _characters(self, text: str) -> None:
        if self.key is not None:
            self.length += len(text)
            if self.length > MAX_TEXT:
                raise HarmoniumError(f"an attribute of more than {MAX_TEXT:,} characters; is it a graph?")
            self.text.append(text)
