"""RDF in and out, and a real Oxigraph server asked over HTTP."""

from __future__ import annotations

import gzip
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pyoxigraph as ox
import pytest

import harmonium
from graph_checks import facts, whole
from harmonium.data.datasets import convert, load
from harmonium.data.formats.rdf import files as rdf
from harmonium.data.formats.rdf import sparql
from harmonium.data.formats.rdf.statements import identifier, parse
from harmonium.data.graph import SPLITS
from harmonium.data.tables.encode import encode
from harmonium.data.tables.reading_options import Options
from harmonium.errors import HarmoniumError

TURTLE = """
@prefix : <http://example.org/> . @prefix wd: <http://example.org/entity/> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
wd:Q72 :capitalOf wd:Q39 ; :population 421878 ; rdfs:label "Zurigo"@it, "Zürich"@de-CH, "Zurich" .
wd:Q39 :borders wd:Q142, _:somewhere ; rdfs:label "Suisse"@fr, "Switzerland"@en ; skos:prefLabel "the Swiss"@en .
wd:Q142 skos:prefLabel "France" ; :motto "Liberté,\\négalité"@fr .
:capitalOf rdfs:label "capital of"@en .
"""
BASE = "http://example.org/"


Q72, Q39, Q142 = (f"{BASE}entity/{name}" for name in ("Q72", "Q39", "Q142"))


@pytest.fixture
def turtle(write_folder) -> Path:
    return write_folder({"swiss.ttl": TURTLE}) / "swiss.ttl"


def test_rdf_facts_and_names(turtle: Path) -> None:
    graph = whole(turtle)
    assert facts(graph)[:2] == [(Q72, f"{BASE}capitalOf", Q39), (Q39, f"{BASE}borders", Q142)]
    assert len(graph.train) == 3 and graph.entities.ids[3].startswith("_:")
    assert graph.entities.labels[:3] == ["Zurich", "Switzerland", "France"]
    assert graph.relations.labels == ["capital of", "borders"]  # the second by the last part of its IRI
    assert [(note.kind, note.count) for note in graph.notes] == [("skipped", 2)]
    assert graph.name == "swiss"


def test_rdf_literals_may_be_kept(turtle: Path, tmp_path: Path) -> None:
    graph = whole(turtle, literals="keep")
    assert len(graph.train) == 5 and [note.kind for note in graph.notes] == ["line breaks"]
    number = '"421878"^^<http://www.w3.org/2001/XMLSchema#integer>'
    assert (Q72, f"{BASE}population", number) in facts(graph)
    assert graph.entities.name(graph.entities.index(number)) == "421878"
    assert graph.entities.index("Liberté, égalité") > 0
    harmonium.convert(graph, tmp_path / "again.nt")
    again = whole(tmp_path / "again.nt", literals="keep")
    assert set(facts(again)) == set(facts(graph))
    assert set(again.entities.labels) == set(graph.entities.labels)


def test_statements_about_statements_are_skipped_and_counted(write_folder) -> None:
    text = "<a:s> <a:says> <<( <a:x> <a:r> <a:y> )>> .\n<a:s> <a:r> <a:x> .\n"
    graph = whole(write_folder({"f.nt": text}) / "f.nt")
    assert facts(graph) == [("a:s", "a:r", "a:x")]
    assert [(note.kind, note.count) for note in graph.notes] == [("skipped", 1)]


def test_rdf_folders_and_named_graphs_have_splits(write_folder) -> None:
    a, b = "<a:a> <a:r> <a:b> .\n", "<a:b> <a:r> <a:a> .\n"
    graph = load(write_folder({"train.nt.gz": gzip.compress(a.encode()), "test.ttl": b}))
    assert (facts(graph), facts(graph, "test")) == ([("a:a", "a:r", "a:b")], [("a:b", "a:r", "a:a")])
    quads = a.replace(" .", " <urn:harmonium:split:train> .") + b.replace(" .", " <urn:harmonium:split:valid> .")
    graph = load(write_folder({"f.nq": quads + "<a:c> <a:r> <a:a> <http://any.other/graph> .\n"}) / "f.nq")
    assert [len(getattr(graph, split)) for split in SPLITS] == [2, 1, 0]


@pytest.mark.parametrize(
    "name",
    ["Bern", "/m/027rn", "a b", "urn:x:1", "http://x.y/z", "_:b1", '"', "写", "urn:harmonium:name:a", "C:\\x y", "50%"],
)
def test_any_identifier_survives_rdf(name: str) -> None:
    assert identifier(rdf.subject(name)) == name and identifier(rdf.iri(name)) == name


@pytest.mark.parametrize("ending", ["nt", "ttl.xz"])
def test_predictions_are_described_with_probability_and_run(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"predicted.{ending}"
    triples = [(Q72, f"{BASE}borders", "New York"), ("a", "r", '"5"')]
    rdf.write_predictions(file, triples, iter([0.75, 0.5]), "runs/demo")
    store = ox.Store()
    store.extend(parse(file))
    assert len(store) == 12
    query = """PREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> PREFIX h: <urn:harmonium:>
    SELECT ?s ?o ?p ?run { ?x a rdf:Statement; rdf:subject ?s; rdf:object ?o; h:probability ?p; h:run ?run }
    ORDER BY DESC(?p)"""
    first, second = store.query(query)
    assert (first["s"].value, identifier(first["o"]), float(first["p"].value)) == (Q72, "New York", 0.75)
    assert (identifier(second["s"]), second["o"].value, second["run"].value) == ("a", "5", "runs/demo")
    assert not list(store.quads_for_pattern(ox.NamedNode(Q72), None, None))  # described, not asserted


# A SPARQL endpoint -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """An Oxigraph server on loopback with the facts above."""
    binary = Path(sys.executable).parent / "oxigraph"
    binary = str(binary) if binary.is_file() else shutil.which("oxigraph")
    assert binary, "no oxigraph server here: pip install oxigraph"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [binary, "serve", "--bind", f"127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        headers = {"Content-Type": "text/turtle"}
        for _ in range(200):
            try:
                with urlopen(Request(f"{url}/store?default", TURTLE.encode(), headers, method="PUT"), timeout=60):
                    break
            except OSError:
                time.sleep(0.05)
        yield f"{url}/query"
    finally:
        server.terminate()
        server.wait(10)


def test_sparql_reads_all_but_literals(endpoint: str) -> None:
    graph = whole(f"sparql:{endpoint}", allow_internal=True)
    assert {(Q72, f"{BASE}capitalOf", Q39), (Q39, f"{BASE}borders", Q142)} < set(facts(graph))
    assert len(graph.train) == 3
    assert {"Zurich", "Switzerland", "France"} <= set(graph.entities.labels)
    assert graph.relations.index("capital of") >= 0
    assert len(whole(f"sparql:{endpoint}", literals="keep", allow_internal=True).train) == 5


@pytest.mark.parametrize("page", [1, 2, 3, 1000])
def test_sparql_pages_make_one_graph(endpoint: str, page: int) -> None:
    source = sparql.read(f"sparql:{endpoint}", Options(allow_internal=True), page)
    assert sum(len(part) for part in source.splits.values()) == 3
    assert encode(source).notes == ()


WRONG_QUERIES = {
    "SELECT ?x WHERE {": "the endpoint answers 400 ",
    "SELECT ?s ?o { ?s ?p ?o }": "found 2 columns, expected 3",
    "ASK { ?s ?p ?o } # LIMIT 1": "the query must be a SELECT",
    "SELECT ?s ?p ?o { ?s ?p ?x OPTIONAL { ?o ?s ?nothing } }": "a row leaves one of s, p, o unbound",
    "SELECT ?s ?o ('x' AS ?p) { ?s ?q ?o }": "selected as a relation, which must be an IRI",
}


@pytest.mark.parametrize(("query", "message"), WRONG_QUERIES.items())
def test_a_wrong_query_is_explained(endpoint: str, query: str, message: str) -> None:
    with pytest.raises(HarmoniumError, match=message):
        load(f"sparql:{endpoint}", query=query, allow_internal=True)


# Blank nodes and keys ------------------------------------------------------------------------------------------------


def test_blank_nodes_of_two_files_are_two(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / f"{split}.nt").write_text("_:a <u:r> <u:b> .\n_:a <u:r> _:c .\n")
    graph = load(tmp_path)
    heads = {split: {head for head, _, _ in facts(graph, split)} for split in ("train", "test")}
    assert heads["train"] == {"_:a"} and heads["test"] == {"_:test.a"}
    convert(graph, tmp_path / "again", "nt")
    again = load(tmp_path / "again")
    assert [facts(again, split) for split in heads] == [facts(graph, split) for split in heads]


CONTEXTS = {
    "none": ({}, {"name", "knows"}),
    "of one": ({"@context": {"knows": "u:knows"}}, {"name"}),
    "of all": ({"@context": {"@vocab": "http://x.y/"}}, set()),
    "in a list": ({"@context": [{"knows": "u:knows"}, {"name": "u:name"}]}, set()),
}


@pytest.mark.parametrize(("context", "lost"), CONTEXTS.values(), ids=CONTEXTS.keys())
def test_keys_of_json_ld_that_say_nothing_are_noted(tmp_path: Path, context: dict[str, Any], lost: set[str]) -> None:
    node = {"@id": "u:a", "u:r": {"@id": "u:b"}, "name": "Ann", "knows": {"@id": "u:c"}}
    (tmp_path / "facts.jsonld").write_text(json.dumps(context | node))
    noted = {
        note.text.split("'")[1] for note in load(tmp_path / "facts.jsonld", valid=0, test=0).notes if "key" in note.text
    }
    assert noted == lost
