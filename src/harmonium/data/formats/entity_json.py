"""JSON with a list of entities and one of relations, as LightRAG, nano-graphrag and extraction by language models write it.

    {"entities": [{"entity_name": ..., "entity_type": ...}], "relationships": [{"src_id": ..., "tgt_id": ...}]}

The lists may have other usual names (nodes; relations, edges, links), also those of LightRAG's storage
(vdb_relationships.json, kv_store_full_relations.json). A link with a type of its own (relation, predicate, type, ...) has a
direction.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from harmonium.data.compressed import numbered_lines, open_bytes, strip_compression
from harmonium.data.formats.links import Link, LinkReader, has_relation
from harmonium.data.tables.columns import ALIASES
from harmonium.data.tables.reading_options import Options
from harmonium.data.tables.rows import read_json
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.source import Source
from harmonium.data.tables.table import to_source
from harmonium.errors import HarmoniumError

LINKS = ("relationships", "relations", "edges", "links", "triples", "facts", "data")
ENTITIES = ("entities", "nodes")
PAIRS = "relation_pairs"  # of a document in LightRAG's kv_store_full_relations.json
NAMES = ("entity_name", "title", "name", "id", "label")
TYPES = ("entity_type", "type", "label")
HEADS = ("src_id", *ALIASES["head"])
TAILS = ("tgt_id", *ALIASES["tail"])
RAG_FILES = ("vdb_relationships.json", "kv_store_full_relations.json")  # where LightRAG keeps its graph elsewhere
MAX_BYTES = 1 << 31


def detect(path: Path, options: Options) -> bool:
    file = _file(path)
    if file is None or strip_compression(file).suffix != ".json":
        return False
    return isinstance(content := _content(file), dict) and _links_of(content) is not None


def read(path: Path, options: Options) -> Source:
    file = _file(path)
    assert file is not None, "detected"
    reader = LinkReader(str(file), options, SkippedRows(options.on_bad))
    tables = {"train": partial(_tables, file, reader)}
    return to_source(path.absolute().name.split(".")[0], tables, str(file), notes=reader.notes, skipped=reader.skipped)


def _file(path: Path) -> Path | None:
    if path.is_file():
        return path
    return next((path / name for name in RAG_FILES if (path / name).is_file()), None)


def _content(file: Path) -> Any:
    """The object in a file; None if it is anything else, such as JSON lines."""
    try:
        with open_bytes(file) as stream:
            start = stream.read(1 << 16).lstrip(b"\xef\xbb\xbf \t\r\n")
        if not start.startswith(b"{") or b"\0" in start:
            return None
        return read_json("".join(line for _, line in numbered_lines(file, max_line=MAX_BYTES)))
    except (OSError, EOFError, ValueError, RecursionError):  # a HarmoniumError is a ValueError
        return None


def _tables(file: Path, reader: LinkReader) -> Iterator[pl.DataFrame]:
    reader.skipped.restart(file)
    content = _content(file)
    if content is None:
        raise HarmoniumError(f"{file}: changed while it was read")
    return reader.tables(_links(content, reader), _types(content))


def _links_of(content: dict[str, Any]) -> list[Any] | None:
    """The list of links in an object."""
    for name in LINKS:
        links = content.get(name)
        if (
            isinstance(links, list)
            and links
            and isinstance(links[0], dict)
            and _key(links[0], HEADS)
            and _key(links[0], TAILS)
        ):
            return links
    pairs = [
        value[PAIRS] for value in content.values() if isinstance(value, dict) and isinstance(value.get(PAIRS), list)
    ]
    return [_pair(pair) for part in pairs for pair in part] if pairs else None


def _pair(pair: Any) -> Any:
    return {"src_id": pair[0], "tgt_id": pair[1]} if isinstance(pair, list) and len(pair) == 2 else pair


def _links(content: dict[str, Any], reader: LinkReader) -> Iterator[Link]:
    columns = reader.options.fact_titles
    for number, row in enumerate(_links_of(content) or (), start=1):
        where = f": link {number}"
        if not isinstance(row, dict):
            reader.skipped.reject(reader.location, where, "not an object", '; expected {"source": ..., "target": ...}')
            continue
        head, tail = (columns[0], columns[2]) if columns else (_key(row, HEADS), _key(row, TAILS))
        attributes = {str(key): _text(value) for key, value in row.items()}
        has_type = bool(columns) or has_relation(attributes)
        yield Link(_text(row.get(head or "")), _text(row.get(tail or "")), attributes, has_type, where)


def _types(content: dict[str, Any]) -> Iterator[tuple[str, str]]:
    entities: list[Any] = next((content[name] for name in ENTITIES if isinstance(content.get(name), list)), [])
    for row in entities:
        if isinstance(row, dict):
            name, kind = _key(row, NAMES), _key(row, TYPES)
            if name and kind and name != kind:
                yield _text(row[name]), _text(row[kind])


def _key(row: dict[str, Any], names: Sequence[str]) -> str | None:
    """The first of these keys that an object has."""
    return next((name for name in names if name in row), None)


def _text(value: Any) -> str:
    """Text, which numbers are too, or true or false; anything else is empty."""
    if isinstance(value, str):
        return value
    return str(value).casefold() if isinstance(value, bool) else ""
