"""Facts that a person enters, instead of choosing among predicted ones: their names, and whether they change anything."""

from __future__ import annotations

from collections.abc import Set

from harmonium.data.graph import Graph
from harmonium.data.names import clean_name, is_empty, is_placeholder
from harmonium.data.triples import Slot
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.review.store import CONTROL, FactIds, Verdict

LONGEST_NEW_NAME = 500  # characters


def identify(graph: Graph, fact: FactIds, allow_new: bool, judged: Set[FactIds] = frozenset()) -> FactIds:
    """The identifiers of a fact that is given by identifiers or labels; new names only where they are allowed.

    A fact that was `judged` before may keep names that the graph does not have.
    """
    if fact in judged:
        return fact
    vocabularies = graph.entities, graph.relations, graph.entities
    head, relation, tail = (
        _identify(vocabulary, name, allow_new) for vocabulary, name in zip(vocabularies, fact, strict=True)
    )
    return head, relation, tail


def _identify(vocabulary: Vocabulary, name: str, allow_new: bool) -> str:
    if name in vocabulary or not allow_new:
        return vocabulary.ids[vocabulary.index(name)]
    cleaned = clean_name(CONTROL.sub(" ", name))
    if is_empty(cleaned) or is_placeholder(cleaned) or len(cleaned) > LONGEST_NEW_NAME:
        raise HarmoniumError(
            f"a new {vocabulary.kind} needs a name of 1 to {LONGEST_NEW_NAME} characters, not '{name[:80]}'"
        )
    return vocabulary.ids[vocabulary.index(cleaned)] if cleaned in vocabulary else cleaned


def check_needed(graph: Graph, fact: FactIds, verdict: Verdict) -> None:
    """An error if the graph says already what a judgement of this fact would say."""
    if not all(name in names for names, name in _parts(graph, fact)):
        return
    triple = graph.triple(*fact)
    split = graph.splits_of(triple)[0]
    if verdict == "accepted" and split is not None:
        raise HarmoniumError(f"{text(graph, fact)}: already a fact of the graph ({split})")
    if verdict == "rejected" and split is None and graph.rejected_answers(Slot.TAIL).contain(triple).all():
        raise HarmoniumError(f"{text(graph, fact)}: already recorded as false")


def text(graph: Graph, fact: FactIds) -> str:
    """The names of a fact; those that the graph does not have as they are."""
    names = (
        vocabulary.name(vocabulary.index(name)) if name in vocabulary else name
        for vocabulary, name in _parts(graph, fact)
    )
    return " · ".join(names)


def _parts(graph: Graph, fact: FactIds) -> list[tuple[Vocabulary, str]]:
    return list(zip((graph.entities, graph.relations, graph.entities), fact, strict=True))
