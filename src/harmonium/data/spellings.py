"""Spellings of one name: Zinc, ZINC and zinc become one entity unless there is evidence against it.

Candidates are names that differ only in case, whitespace, Unicode form or accents (`spelling_key`). They are kept apart

- if one fact has both, as head and tail;
- if they have other roles: Polish, which people speak, is not polish, which one buys;
- if one is a symbol, in which case matters: CO is not Co;
- if they are identifiers: IRIs, or names of a graph that has readable labels besides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from harmonium.data.entity_types import EntityTypes
from harmonium.data.graph import Graph, Note
from harmonium.data.names import relation_key, spelling_key
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary

NAMES_IN_NOTE = 3
MAX_NAMES_COMPARED = 1_000_000  # a microsecond each; larger vocabularies are left as they are
MIN_SHARED_ROLES = 0.5  # share of the roles of the name with fewer roles that the other name must have too
UNITED, APART = "spellings united", "spellings kept apart"  # kinds of notes


@dataclass(frozen=True)
class Spelling:
    """A rarer spelling of a name, and the reason against uniting it with the usual one, if any."""

    usual: int  # id of the spelling with the most facts
    other: int
    against: str = ""  # reason; empty: none


def find_spellings(graph: Graph) -> tuple[list[Spelling], list[Spelling]]:
    """Names of entities and of relations that may be other spellings of a more frequent name."""
    facts = graph.facts()
    of_entities = torch.cat([facts.head, facts.tail]).bincount(minlength=graph.n_entities)
    of_relations = facts.relation.bincount(minlength=graph.n_relations)
    entities = _pairs(graph.entities, of_entities, spelling_key)
    relations = _pairs(graph.relations, of_relations, relation_key)
    return _judge(graph, entities) if entities else [], [Spelling(*pair) for pair in relations]


def unite_spellings(graph: Graph) -> Graph:
    """Unite spellings, unless there is evidence against it; notes list those united and those kept apart.

    The spelling with the most facts is kept. Facts that become equal are dropped within each split.
    """
    entities, relations = find_spellings(graph)
    notes = _notes(graph.entities, entities, "entities") + _notes(graph.relations, relations, "relations")
    entity_names, entity = _merge(graph.entities, entities)
    relation_names, relation = _merge(graph.relations, relations)

    def renumber(triples: Triples) -> Triples:
        return replace(
            triples, head=entity[triples.head], relation=relation[triples.relation], tail=entity[triples.tail]
        )

    splits = {split: renumber(triples) for split, triples in graph.splits.items()}
    if len(entity_names) < graph.n_entities or len(relation_names) < graph.n_relations:
        from harmonium.data.repeats import drop_repeated  # needs polars, which training on a .graph file does not

        notes += drop_repeated(splits)
    train, valid, test = splits.values()
    return replace(
        graph,
        entities=entity_names,
        relations=relation_names,
        train=train,
        valid=valid,
        test=test,
        notes=(*graph.notes, *notes),
        rejected=renumber(graph.rejected),
    )


def _pairs(vocabulary: Vocabulary, counts: Tensor, key: Callable[[str], str]) -> list[tuple[int, int]]:
    """(usual spelling, other spelling) of names with the same key; the usual one has the most facts."""
    if vocabulary.labels is not None or len(vocabulary) > MAX_NAMES_COMPARED:
        return []
    groups: dict[str, list[int]] = defaultdict(list)
    for index, name in enumerate(vocabulary.ids):
        if "://" not in name and not name.startswith("_:"):
            groups[key(name)].append(index)
    pairs = []
    for group in groups.values():
        if len(group) > 1:
            usual, *others = sorted(group, key=lambda index: (-int(counts[index]), index))
            pairs += [(usual, other) for other in others]
    return pairs


def _judge(graph: Graph, pairs: Sequence[tuple[int, int]]) -> list[Spelling]:
    """Find the reason against uniting each pair of entities, if there is one."""
    group = torch.full((graph.n_entities,), -1)
    for usual, other in pairs:
        group[usual] = group[other] = usual
    facts = graph.facts()
    both = (group[facts.head] == group[facts.tail]) & (group[facts.head] >= 0)
    together = {frozenset(row) for row in torch.stack([facts.head[both], facts.tail[both]], 1).tolist()}
    roles = _roles(graph, (group >= 0).nonzero()[:, 0])
    spellings = []
    for usual, other in pairs:
        fewer, more = sorted((roles[usual], roles[other]), key=len)
        against = ""
        if frozenset((usual, other)) in together:
            against = "in one fact"
        elif any(_is_symbol(graph.entities.ids[entity]) for entity in (usual, other)):
            against = "symbols"
        elif len(fewer & more) < MIN_SHARED_ROLES * len(fewer) or not fewer:
            against = "other roles"
        spellings.append(Spelling(usual, other, against))
    return spellings


def _roles(graph: Graph, entities: Tensor) -> dict[int, set[int]]:
    """The slots of relations that each entity fills, and the types that the graph states for it."""
    roles: dict[int, set[int]] = {entity: set() for entity in entities.tolist()}
    row, role = EntityTypes.infer(graph).roles.lookup(entities)
    for entity, number in zip(entities[row].tolist(), role.tolist(), strict=True):
        roles[entity].add(number)
    return roles


def _is_symbol(name: str) -> bool:
    """Whether letter case is significant in a name: one or two letters (US), or a short word in mixed case (NaCl, aB3)."""
    if len(name) <= 2:
        return True
    is_word = name in (name.lower(), name.upper(), name.capitalize())
    return not is_word and " " not in name and (len(name) <= 4 or any(character.isdigit() for character in name))


def _merge(vocabulary: Vocabulary, spellings: Sequence[Spelling]) -> tuple[Vocabulary, Tensor]:
    """The vocabulary with spellings united, except those with a reason against it; and the new id (n,) of each old one."""
    usual = torch.arange(len(vocabulary))
    for each in spellings:
        if not each.against:
            usual[each.other] = each.usual
    kept, number = usual.unique(return_inverse=True)
    if len(kept) == len(vocabulary):
        return vocabulary, number
    return Vocabulary([vocabulary.ids[index] for index in kept.tolist()], kind=vocabulary.kind), number


def _notes(vocabulary: Vocabulary, spellings: Sequence[Spelling], kind: str) -> list[Note]:
    """How many spellings were united, and how many kept apart, with examples."""
    notes = []
    united = [each for each in spellings if not each.against]
    if united:
        names = [f"{vocabulary.ids[each.other]} with {vocabulary.ids[each.usual]}" for each in united[:NAMES_IN_NOTE]]
        more = ", ..." * (len(united) > NAMES_IN_NOTE)
        text = f"united {len(united):,} other spellings of {kind} (case, whitespace, accents): {', '.join(names)}{more}"
        notes.append(Note(f"{text}; --no-unite (unite=False) keeps them", UNITED, "", len(united)))
    apart = [each for each in spellings if each.against]
    if apart:
        names = [
            f"{vocabulary.ids[each.usual]} and {vocabulary.ids[each.other]} ({each.against})"
            for each in apart[:NAMES_IN_NOTE]
        ]
        more = ", ..." * (len(apart) > NAMES_IN_NOTE)
        text = f"kept apart {len(apart):,} {kind} that differ only in case, whitespace or accents: {', '.join(names)}{more}"
        notes.append(Note(text, APART, "", len(apart)))
    return notes
