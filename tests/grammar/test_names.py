"""What names say, on chemistry: isotopes, anions of compounds and the kinds of salts; and where names are identifiers."""

from __future__ import annotations

import numpy as np
import pytest

from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.grammar.attributes import Attributes
from harmonium.grammar.names import Names
from small import graph_of

ELEMENTS = [
    "Copper",
    "Gold",
    "Silver",
    "Iron",
    "Rubidium",
    "Nickel",
    "Zinc",
    "Lead",
    "Barium",
    "Lithium",
    "Tin",
    "Cobalt",
]
ANIONS = ["hydroxide", "chromate", "sulfate", "nitrate", "chloride"]
ASKED = [("Copper-64", "isotope", "Copper"), ("Copper(II)_hydroxide", "anion", "Hydroxide")]


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Two isotopes of each element and most salts; what is asked below is not in it."""
    facts = [(f"{element}-{60 + 2 * i}", "isotope", element) for element in ELEMENTS for i in (1, 2)]
    for i, element in enumerate(ELEMENTS):
        for anion in ANIONS:
            salt = f"{element}(II)_{anion}" if i % 2 == 0 else f"{element}_{anion}"
            facts += [(salt, "anion", anion.capitalize()), (salt, "is", f"{anion}_salt")]
    asked = {*ASKED, ("Rubidium(II)_chromate", "is", "chromate_salt")}
    kept = [fact for fact in facts if fact not in asked]
    assert len(kept) == len(facts) - 3
    names = " ".join({name for head, _, tail in facts for name in (head, tail)})
    labels = {name: name.replace("_", " ") for name in names.split()}
    return graph_of(", ".join(" ".join(fact) for fact in kept), entities=names, labels=labels)


def strengths(graph: Graph, head: str, relation: str) -> dict[str, np.ndarray]:
    """Of each constraint, for all tails."""
    family = Names(Attributes.of(graph, ("train",)), graph.entities)
    given = np.array([graph.entities.index(head)])
    found = family.strengths(Slot.TAIL, graph.relations.index(relation), given)
    return {title: strength[0] for title, strength in zip(family.constraints, found, strict=True)}


def best(graph: Graph, values: np.ndarray) -> str:
    return graph.entities.ids[int(values.argmax())]


@pytest.mark.parametrize(("head", "relation", "tail"), ASKED)
def test_a_rare_word_leads_to_the_answer_among_answers(graph: Graph, head: str, relation: str, tail: str) -> None:
    """Other names share the word as well; of the known answers of the relation only the right one does."""
    of_head, answers = (
        strengths(graph, head, relation),
        graph.train.tail[graph.train.relation == graph.relations.index(relation)],
    )
    known = np.isin(np.arange(graph.n_entities), answers.numpy())
    assert best(graph, of_head["rare words in common"] * known) == tail
    assert of_head["its name inside"][graph.entities.index(tail)] == 1
    assert (of_head["its name inside"] * known).sum() == 1


def test_the_pattern_of_names_of_known_answers(graph: Graph) -> None:
    """All other chromates are chromate salts, and that is said with their number."""
    of_head = strengths(graph, "Rubidium(II)_chromate", "is")
    assert best(graph, of_head["entities with its words"]) == "chromate_salt"
    ordered = np.sort(of_head["entities with its words"])
    assert ordered[-1] > 0.8 and ordered[-2] < 0.4
    family = Names(Attributes.of(graph, ("train",)), graph.entities)
    query = Slot.TAIL, graph.relations.index("is"), graph.entities.index("Rubidium(II)_chromate")
    texts = [evidence.text for evidence in family.evidence(*query, graph.entities.index("chromate_salt"))]
    assert "11 of 11 entities with 'chromate' in their name have this value" in texts


def test_words_of_answers_fit_the_slot(graph: Graph) -> None:
    fit = strengths(graph, "Copper(II)_hydroxide", "is")["words of such names"]
    assert fit[graph.entities.index("sulfate_salt")] > 0 > fit[graph.entities.index("Gold-62")]


def test_identifiers_say_nothing() -> None:
    facts = Triples.from_rows([[i, 0, (7 * i) % 30] for i in range(30)])
    entities = Vocabulary([f"Q{1000 + 17 * i}" for i in range(30)])
    family = Names(Attributes(facts, 30, 1), entities)
    assert family.is_idle
    assert all((strength == 0).all() for strength in family.strengths(Slot.TAIL, 0, np.arange(30)))
