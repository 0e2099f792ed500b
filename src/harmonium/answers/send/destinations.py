"""Where `complete` sends its facts: a Neo4j server, or a file for Neo4j, GraphRAG or LightRAG."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harmonium.answers.send import neo4j_facts, rag_facts
from harmonium.answers.send.result_file import check_writable, not_ours, parquet_columns
from harmonium.data.compressed import READ_ERRORS, open_bytes, strip_compression
from harmonium.data.formats.neo4j.address import Neo4jAddress, is_neo4j
from harmonium.errors import HarmoniumError
from harmonium.run.run import Run

SUFFIXES_OF_TOOL = {
    "neo4j": (".csv", ".cypher"),
    "graphrag": (".parquet",),
    "lightrag": (".json",),
}  # tool -> suffixes of its files


def check_destination(to: str | None, out: str | Path | None) -> None:
    """Refuse a destination that cannot be written before any work is done."""
    if to is None or is_neo4j(to):
        if to is not None:
            Neo4jAddress.parse(to)
        return
    tool, id = _tool(to)
    if tool not in SUFFIXES_OF_TOOL or (id and tool != "neo4j"):
        raise HarmoniumError(f"--to must be {', '.join(SUFFIXES_OF_TOOL)} or bolt://HOST, not '{to}'")
    suffixes = SUFFIXES_OF_TOOL[tool]
    if out is None or strip_compression(Path(out)).suffix not in suffixes:
        raise HarmoniumError(f"--to {to} writes a file: add --out FILE{' or --out FILE'.join(suffixes)}")
    path = Path(out)
    if strip_compression(path).suffix == ".parquet" and path.suffix != ".parquet":
        raise HarmoniumError(f"--out {path}: a .parquet file is not compressed again; drop {path.suffix}")
    check_writable(path)
    if path.exists() and not _is_ours(path):
        raise not_ours(path)


def _is_ours(path: Path) -> bool:
    """Whether we wrote this file earlier for a tool, so that it may be replaced."""
    try:
        if path.suffix == ".parquet":
            return parquet_columns(path) >= {"predicted", "probability", "run"}
        with open_bytes(path) as file:
            start = file.read(4096)
    except READ_ERRORS:
        return False
    except ValueError:  # includes HarmoniumError
        return False
    return b"predicted by harmonium" in start or start.startswith(",".join(neo4j_facts.HEADER).encode())


def _tool(to: str) -> tuple[str, str | None]:
    """The tool of a file, and the property that identifies nodes, if given: neo4j?id=title."""
    tool, _, id = to.partition("?id=")
    return tool, id or None


def send(
    to: str, rows: Sequence[dict[str, Any]], run: Run, out: str | Path | None = None, allow_internal: bool = False
) -> int:
    """Write facts to a destination; returns how many of them it has now."""
    if is_neo4j(to):
        return neo4j_facts.write_to_server(to, rows, run, allow_internal)
    assert out is not None, "checked"
    path, (tool, id) = Path(out), _tool(to)
    if tool == "graphrag":
        rag_facts.write_graphrag(path, rows, run)
        return len(rag_facts.links(rows, run.graph))
    if tool == "lightrag":
        rag_facts.write_lightrag(path, rows, run)
        return len(rag_facts.links(rows, run.graph))
    if strip_compression(path).suffix == ".cypher":
        neo4j_facts.write_cypher(path, rows, run, id)
    else:
        neo4j_facts.write_csv(path, rows, run)
    return len(rows)
