"""Graphs of retrieval tools: GraphRAG's Parquet, GraphML of LightRAG and nano-graphrag, JSON of entities and relations."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import networkx as nx
import polars as pl
import pytest

import harmonium
from fuzzing import in_this_process
from graph_checks import facts
from harmonium.data.datasets import load
from harmonium.errors import HarmoniumError

LINKS = [("ALICE", "ACME"), ("BOB", "ACME"), ("ALICE", "BOB")]
TYPES = {"ALICE": "person", "BOB": "person", "ACME": "organization", "LONELY": "UNKNOWN"}
BOTH_WAYS = {(a, "related to", b) for h, t in LINKS for a, b in ((h, t), (t, h))}
STATED = {("ALICE", "type", "person"), ("BOB", "type", "person"), ("ACME", "type", "organization")}


def all_facts(source: Any, **options: Any) -> set[tuple[str, str, str]]:
    graph = load(source, **options)
    return {fact for split in graph.splits for fact in facts(graph, split)}


# GraphRAG ------------------------------------------------------------------------------------------------------------


def write_graphrag(folder: Path, prefix: str = "", title: str = "title", **more: list[Any]) -> Path:
    """The columns that GraphRAG writes."""
    folder.mkdir(exist_ok=True)
    entities = {
        "id": [f"uuid-{i}" for i in range(len(TYPES))], title: list(TYPES), "type": list(TYPES.values()),
        "description": ["..."] * len(TYPES), "text_unit_ids": [["u1", "u2"]] * len(TYPES), "degree": [2, 2, 2, 0],
    }  # fmt: skip
    relationships = {
        "id": [f"uuid-r{i}" for i in range(len(LINKS))], "human_readable_id": [0, 1, 2],
        "source": [head for head, _ in LINKS], "target": [tail for _, tail in LINKS],
        "description": ["works at", "works at", "met"], "weight": [8.0, 1.0, 5.0], "combined_degree": [4, 4, 4],
        "text_unit_ids": [["u1"]] * 3, **more,
    }  # fmt: skip
    pl.DataFrame(entities).write_parquet(folder / f"{prefix}entities.parquet")
    pl.DataFrame(relationships).write_parquet(folder / f"{prefix}relationships.parquet")
    return folder


@pytest.mark.parametrize(("prefix", "title"), [("", "title"), ("create_final_", "name")])
def test_graphrag_output_is_read_both_ways_with_types(tmp_path: Path, prefix: str, title: str) -> None:
    folder = write_graphrag(tmp_path / "output", prefix, title)
    assert all_facts(folder) == BOTH_WAYS | STATED
    assert all_facts(folder / f"{prefix}relationships.parquet") == BOTH_WAYS | STATED
    assert any("read as 'related to'" in str(note) for note in load(folder).notes)
    assert load(folder).name == "output"


def test_graphrag_with_a_column_of_relations(tmp_path: Path) -> None:
    folder = write_graphrag(tmp_path / "output")
    expected = {("ALICE", "works at", "ACME"), ("BOB", "works at", "ACME"), ("ALICE", "met", "BOB")} | STATED
    assert all_facts(folder, columns="source,description,target") == expected
    typed = write_graphrag(tmp_path / "typed", relation=["works at", "works at", "met"])
    assert all_facts(typed) == expected


def test_predicted_links_are_not_read_again(tmp_path: Path) -> None:
    folder = write_graphrag(tmp_path / "output", predicted=[False, False, True])
    assert all_facts(folder) == {fact for fact in BOTH_WAYS if {fact[0], fact[2]} != {"ALICE", "BOB"}} | STATED


def test_a_graphrag_folder_without_its_columns_says_which(tmp_path: Path) -> None:
    folder = write_graphrag(tmp_path / "output")
    pl.DataFrame({"a": [1]}).write_parquet(folder / "relationships.parquet")
    with pytest.raises(HarmoniumError, match=r"relationships.parquet: no column 'source'; it has a;"):
        load(folder)


# GraphML -------------------------------------------------------------------------------------------------------------


def write_lightrag(folder: Path, quoted: bool = False) -> Path:
    """The graph as LightRAG and nano-graphrag keep it: an undirected networkx graph."""
    graph, mark = nx.Graph(), '"' if quoted else ""
    for name, kind in TYPES.items():
        graph.add_node(
            f"{mark}{name}{mark}",
            entity_id=name,
            entity_type=f"{mark}{kind}{mark}",
            description="long\ntext",
            source_id="c1",
        )
    for head, tail in LINKS:
        graph.add_edge(
            f"{mark}{head}{mark}", f"{mark}{tail}{mark}", weight=1.0, description="d", keywords="k", source_id="c1"
        )
    folder.mkdir()
    nx.write_graphml(graph, folder / "graph_chunk_entity_relation.graphml")
    return folder


@pytest.mark.parametrize("quoted", [False, True])
def test_lightrag_folder_is_read_both_ways_with_types(tmp_path: Path, quoted: bool) -> None:
    graph = load(write_lightrag(tmp_path / "rag_storage", quoted))
    assert set(graph.names_of(graph.facts())) == BOTH_WAYS | STATED
    assert ('"ALICE"' in graph.entities.ids) == quoted  # identifiers stay those of the tool


def test_graphml_of_a_directed_multigraph(tmp_path: Path) -> None:
    graph = nx.MultiDiGraph()
    graph.add_node(0, label="Zürich & Bern <x>")
    graph.add_edge(0, 1, label="north of")
    graph.add_edge(0, 1, label="near")
    nx.write_graphml(graph, tmp_path / "g.graphml")
    read = load(tmp_path / "g.graphml", valid=0, test=0)
    assert facts(read, "train") == [("0", "north of", "1"), ("0", "near", "1")]
    assert read.names_of(read.train)[0][0] == "Zürich & Bern <x>"


BOMB = '<?xml version="1.0"?><!DOCTYPE g [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><graphml>&b;</graphml>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "has a document type"),
        ("<graphml><graph>", "no element found|not XML"),
        ("", "no element found|not XML"),
        ("<a></b>", r"g.graphml:1: not XML \(mismatched tag\)"),
        ('<?xml version="1.0" encoding="ut8"?><graphml/>', "unknown encoding"),
        ('<?xml version="1.0" encoding="gb18030"?><graphml/>', "not XML that can be read|not XML"),
        ("<svg/>", "its root is not <graphml>"),
        ("<graphml/>", "no triples in it"),
        ('<graphml><graph><edge source="a"/></graph></graphml>', "edge 1: the tail is empty"),
        ("<graphml>" + "<a>" * 100_000, "not XML"),
    ],
)
def test_bad_graphml_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "g.graphml").write_text(text)
    with pytest.raises(HarmoniumError, match=message):
        load(tmp_path / "g.graphml")


# JSON ----------------------------------------------------------------------------------------------------------------

ENTITIES = [{"entity_name": name, "entity_type": kind} for name, kind in TYPES.items()]
PAIRS = [{"src_id": head, "tgt_id": tail, "keywords": "k", "weight": 1.0} for head, tail in LINKS]


@pytest.mark.parametrize("indent", [None, 1])
def test_json_of_entities_and_relationships(tmp_path: Path, indent: int | None) -> None:
    file = tmp_path / "kg.json"
    file.write_text(json.dumps({"chunks": [], "entities": ENTITIES, "relationships": PAIRS}, indent=indent))
    assert all_facts(file) == BOTH_WAYS | STATED


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "vdb_relationships.json",
            {"embedding_dim": 2, "data": [{"__id__": "rel-1", **pair} for pair in PAIRS], "matrix": "AAAA"},
        ),
        ("kv_store_full_relations.json", {"doc-1": {"relation_pairs": [list(link) for link in LINKS], "count": 3}}),
    ],
)
def test_lightrag_storage_without_a_graph_file(tmp_path: Path, name: str, content: dict[str, Any]) -> None:
    (tmp_path / name).write_text(json.dumps(content))
    assert all_facts(tmp_path) == BOTH_WAYS


def test_json_with_types_of_links_has_directions(tmp_path: Path) -> None:
    links = [{"source": "a", "target": "b", "type": "knows"}, {"source": "b", "target": "c", "type": "knows"}]
    content = {"nodes": [{"id": "a", "label": "Person"}, {"id": "b"}], "links": links}
    (tmp_path / "g.json").write_text(json.dumps(content))
    assert all_facts(tmp_path / "g.json") == {("a", "knows", "b"), ("b", "knows", "c"), ("a", "type", "Person")}


def test_json_with_mistakes(tmp_path: Path) -> None:
    file, good = tmp_path / "g.json", {"source": "a", "target": "b", "type": "r"}
    file.write_text(json.dumps({"relations": [good, 7, {"source": "b", "type": "r"}, good | {"target": "c"}]}))
    with pytest.raises(HarmoniumError, match=r"g.json: link 2: not an object"):
        load(file)
    graph = load(file, on_bad="skip")
    assert sum(map(len, graph.splits.values())) == 2
    file.write_text('{"relations": [' * 50_000)
    with pytest.raises(HarmoniumError, match=r"g.json"):
        load(file)


def test_lists_of_facts_in_json_are_read_as_before(tmp_path: Path) -> None:
    lines = [{"head": "a", "relation": "r", "tail": "b"}, {"head": "b", "relation": "r", "tail": "c"}]
    (tmp_path / "lines.json").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "array.json").write_text(json.dumps(lines))
    (tmp_path / "object.json").write_text(json.dumps({"facts": lines}))
    for name in ("lines", "array", "object"):
        assert all_facts(tmp_path / f"{name}.json") == {("a", "r", "b"), ("b", "r", "c")}


def test_folders_of_tools_are_split_and_completed(tmp_path: Path) -> None:
    rows = [(f"E{i}", f"E{(i * 7 + 1) % 60}") for i in range(60)] + [(f"E{i}", f"E{(i + 9) % 60}") for i in range(60)]
    graph = nx.Graph(rows)
    (tmp_path / "rag").mkdir()
    nx.write_graphml(graph, tmp_path / "rag" / "graph_chunk_entity_relation.graphml")
    split = harmonium.load(tmp_path / "rag")
    assert len(split.valid) and len(split.test)
    held_out = {frozenset((head, tail)) for part in ("valid", "test") for head, _, tail in facts(split, part)}
    assert not held_out & {frozenset((head, tail)) for head, _, tail in facts(split, "train")}


ODD_COLUMNS = {
    "bytes that are no text": pl.Series([b"\xff\xfe", b"b"]),
    "lists": pl.Series([["a"], ["b"]]),
    "structures": pl.Series([{"a": 1}, {"a": 2}]),
    "durations": pl.Series([timedelta(days=1)] * 2),
    "nothing": pl.Series([None, None]),
}


@pytest.mark.parametrize("title", ["source", "target", "description", "title", "type"])
@pytest.mark.parametrize("kind", ODD_COLUMNS)
def test_a_column_of_another_type_is_an_error_or_read_as_text(kind: str, title: str, tmp_path: Path) -> None:
    columns = {name: pl.Series(["a", "b"]) for name in ("source", "target", "description", "title", "type")}
    columns |= {title: ODD_COLUMNS[kind], "^.*$": pl.Series(["a", "pattern"])}
    table = pl.DataFrame(columns)
    table.drop("title", "type").write_parquet(tmp_path / "relationships.parquet")
    table.select("title", "type").write_parquet(tmp_path / "entities.parquet")
    with suppress(HarmoniumError):
        in_this_process(tmp_path)
