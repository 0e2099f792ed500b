"""Judgements as RDF with provenance (PROV-O): each is an entity attributed to a person, about a reified fact.

    _:judgement1 a harmonium:Judgement, prov:Entity ;
        harmonium:judges _:fact1 ;                       # an rdf:Statement
        harmonium:verdict "accepted" ;
        prov:wasAttributedTo urn:harmonium:reviewer:ana ;  # a prov:Person with an rdfs:label
        prov:generatedAtTime "2026-01-31T12:00:00.000+00:00"^^xsd:dateTime ;
        prov:wasDerivedFrom urn:harmonium:run:1f3a... ;    # the run whose prediction was judged
        harmonium:probability 0.93 ; harmonium:rank 7 ; harmonium:order "use" ; rdfs:comment "..." .

In N-Triples and Turtle facts are described, not asserted. N-Quads and TriG also assert them, in one named graph for each
verdict: urn:harmonium:facts:accepted, urn:harmonium:facts:rejected, ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harmonium.data.compressed import create_file, strip_compression
from harmonium.data.formats.rdf.files import RDF, RDFS, SLOTS
from harmonium.data.formats.rdf.statements import NAMESPACE, pyoxigraph
from harmonium.review.judgements import JudgedFact, by_fact
from harmonium.review.store import Judgement

PROV = "http://www.w3.org/ns/prov#"
XSD = "http://www.w3.org/2001/XMLSchema#"


def write_rdf(path: Path, judgements: Sequence[Judgement]) -> None:
    """Write judgements to a file, in the format of its ending."""
    ox = pyoxigraph()
    ending = strip_compression(path).suffix
    format = ox.RdfFormat.from_extension(ending[1:])
    prefixes = {"rdf": RDF, "rdfs": RDFS, "prov": PROV, "xsd": XSD, "harmonium": NAMESPACE}
    statements = _statements(by_fact(judgements), asserted=ending in (".nq", ".trig"))
    with create_file(path) as file:
        ox.serialize(statements, file, format, prefixes=prefixes)


def _statements(facts: Sequence[JudgedFact], asserted: bool) -> Iterator[Any]:
    ox = pyoxigraph()
    node, make = ox.NamedNode, ox.Quad if asserted else ox.Triple
    is_a = node(f"{RDF}type")
    named: set[str] = set()
    for number, judged in enumerate(facts, start=1):
        fact = ox.BlankNode(f"fact{number}")
        terms = [write_term(name) for write_term, name in zip(SLOTS.values(), judged.fact, strict=True)]
        yield make(fact, is_a, node(f"{RDF}Statement"))
        for slot, value in zip(("subject", "predicate", "object"), terms, strict=True):
            yield make(fact, node(f"{RDF}{slot}"), value)
        if asserted:
            yield ox.Quad(*terms, node(f"{NAMESPACE}facts:{judged.verdict}"))
        for judgement in judged.judgements:
            reviewer = node(f"{NAMESPACE}reviewer:{quote(judgement.reviewer, safe='')}")
            if judgement.reviewer not in named:
                named.add(judgement.reviewer)
                yield make(reviewer, is_a, node(f"{PROV}Person"))
                yield make(reviewer, node(f"{RDFS}label"), ox.Literal(judgement.reviewer))
            subject = ox.BlankNode(f"judgement{judgement.id}")
            for predicate, value in _description(judgement, fact, reviewer):
                yield make(subject, node(predicate), value)


def _description(judgement: Judgement, fact: Any, reviewer: Any) -> Iterator[tuple[str, Any]]:
    """What is said of a judgement: predicates and objects."""
    ox = pyoxigraph()
    yield f"{RDF}type", ox.NamedNode(f"{NAMESPACE}Judgement")
    yield f"{RDF}type", ox.NamedNode(f"{PROV}Entity")
    yield f"{NAMESPACE}judges", fact
    yield f"{NAMESPACE}verdict", ox.Literal(judgement.verdict)
    yield f"{PROV}wasAttributedTo", reviewer
    yield f"{PROV}generatedAtTime", ox.Literal(judgement.time, datatype=ox.NamedNode(f"{XSD}dateTime"))
    yield f"{PROV}wasDerivedFrom", ox.NamedNode(f"{NAMESPACE}run:{quote(judgement.run, safe='')}")
    yield f"{NAMESPACE}order", ox.Literal(judgement.order)
    if judgement.probability is not None:
        yield f"{NAMESPACE}probability", ox.Literal(judgement.probability)
    if judgement.rank is not None:
        yield f"{NAMESPACE}rank", ox.Literal(judgement.rank)
    if judgement.comment:
        yield f"{RDFS}comment", ox.Literal(judgement.comment)
