"""Weights of facts in RDF: a number said about a statement, or about the named graph that holds the fact.

    << :a :knows :b >> :confidence 0.3 .            Turtle, RDF-star
    :a :knows :b {| :confidence 0.3 |} .            Turtle, RDF 1.2
    _:x rdf:reifies <<( :a :knows :b )>> .          N-Triples and N-Quads, RDF 1.2, with _:x :confidence 0.3 .
    :a :knows :b :source1 .                         N-Quads, with :source1 :confidence 0.3 .

Imports nothing heavy, as files are parsed in a separate process.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

from harmonium.errors import HarmoniumError

REIFIES = "http://www.w3.org/1999/02/22-rdf-syntax-ns#reifies"
PREDICATES = ("confidence", "confidencescore", "certainty", "probability", "weight")  # last parts of their IRIs
STAR = re.compile(rb"\s*<<(?!\()\s*(.*?)\s*>>(.*)", re.DOTALL)  # of a line in RDF-star: a statement as subject

Fact = tuple[str, str, str]  # identifiers


class Annotations:
    """Collects statements about statements and about graphs, and finds the weights among them."""

    def __init__(self, predicate: str | None) -> None:
        self.predicate = predicate.strip("<>") if predicate else None
        self.reified: dict[str, list[tuple[Fact, str]]] = {}  # reifier -> facts, each with its split
        self.graphs: dict[str, int] = {"": 0}  # named graph -> number; 0: the default graph
        self.deferred: list[
            tuple[str, Any, tuple[Any, ...]]
        ] = []  # subject, literal, and the arguments of the statement

    def is_weight(self, predicate: str) -> bool:
        """Whether a predicate states weights: the chosen one or, by default, one of PREDICATES."""
        last = re.split(r"[#/:]", predicate)[-1]
        if self.predicate is not None:
            return self.predicate in (predicate, last)
        return re.sub(r"[_-]", "", last).casefold() in PREDICATES

    def graph_number(self, name: str) -> int:
        return self.graphs.setdefault(name, len(self.graphs))

    def weights(self) -> tuple[list[tuple[Fact, str, float]], dict[int, float], list[tuple[Any, ...]]]:
        """Facts with split and weight, weights of graphs by number, and the statements that annotate neither."""
        facts, graphs, others = [], dict[int, float](), []
        for subject, literal, statement in self.deferred:
            if subject in self.reified:
                facts += [(fact, split, number(literal, " ".join(fact))) for fact, split in self.reified[subject]]
            elif subject in self.graphs:
                key = self.graphs[subject]
                graphs[key] = max(number(literal, subject), graphs.get(key, 0.0))
            else:
                others.append(statement)
        return facts, graphs, others


def number(literal: Any, about: str) -> float:
    """The value of a literal as a weight; anything but a finite number >= 0 is an error."""
    try:
        value = float(literal.value)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise HarmoniumError(
            f"the weight of {about} is '{literal.value}', which is not a finite number, 0 or more; correct it, or "
            "choose another predicate with --weight-column (load: weight_column=...)"
        )
    return value


def from_star(lines: list[bytes], first: int) -> Iterator[bytes]:
    """Lines of N-Triples or N-Quads with `<< s p o >> ...` of RDF-star rewritten as a reifier of RDF 1.2."""
    for position, line in enumerate(lines, start=first):
        match = STAR.fullmatch(line)
        if match is None:
            yield line
            continue
        node = b"_:harmoniumStatement%d" % position
        yield b"%s <%s> <<( %s )>> .\n" % (node, REIFIES.encode(), match[1])
        yield node + match[2]
