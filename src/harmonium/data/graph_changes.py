"""Change a graph: add facts, remove facts or record them as false; and undo such a change.

Ids never change: new entities and relations come last, added facts come after all other training facts. An entity or
relation that loses its last fact stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from harmonium.data.graph import SPLITS, Graph
from harmonium.data.index import KnownAnswers
from harmonium.data.tables.skipped_rows import OnBad
from harmonium.data.triples import Slot, Triples, read_columns
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.runtime import schema

NAMES_IN_NOTE = 3


@dataclass(frozen=True)
class GraphChange:
    """A graph before and after a change. Facts are in the ids of the graph afterwards."""

    before: Graph
    graph: Graph
    added: Triples  # to train
    removed: Triples  # from train
    rejected: Triples  # recorded as false by this change; facts that were removed among them
    accepted: Triples  # added, and no longer recorded as false
    removed_rows: Mapping[str, Tensor]  # of each split of the graph before
    notes: tuple[str, ...] = ()

    @property
    def new_entities(self) -> list[str]:
        return [self.graph.entities.name(i) for i in range(self.before.n_entities, self.graph.n_entities)]

    @property
    def new_relations(self) -> list[str]:
        return [self.graph.relations.name(i) for i in range(self.before.n_relations, self.graph.n_relations)]

    def has_new(self, facts: Triples) -> Tensor:
        """(n,) bool: which facts have an entity or relation that the graph before does not know."""
        is_new = (facts.head >= self.before.n_entities) | (facts.tail >= self.before.n_entities)
        return is_new | (facts.relation >= self.before.n_relations)


def change_graph(graph: Graph, add: Graph | None, remove: Graph | None, on_bad: OnBad = "error") -> GraphChange:
    """Add the facts of one graph and remove those of another; names are matched by identifier or label.

    Unknown names in added facts become new entities and relations; in facts to remove any other unknown name is an error.
    Every fact to remove is recorded as false, also one that the graph does not contain. An added fact is no longer recorded
    as false.
    """
    notes = [str(note) for given in (add, remove) if given is not None for note in given.notes]
    wider, facts_to_add = _add_names(graph, add, notes)
    facts_to_remove = _known_facts(wider, remove, on_bad, notes)
    _check_contradictions(wider, facts_to_add, facts_to_remove)
    is_known = wider.known_answers(Slot.TAIL, queries=facts_to_add).contain(facts_to_add)
    if count := int(is_known.sum()):
        notes.append(f"{count:,} facts were known already")
    added = facts_to_add[~is_known]

    removal = KnownAnswers.build(Slot.TAIL, facts_to_remove, wider.n_entities)
    kept = {split: ~removal.contain(facts) for split, facts in graph.splits.items()}
    removed_rows = {split: (~mask).nonzero()[:, 0] for split, mask in kept.items()}
    splits = {split: facts[kept[split]] for split, facts in graph.splits.items()}
    train = Triples.cat([splits["train"], added]) if len(added) else splits["train"]
    if not len(train):
        raise HarmoniumError(f"{graph.name}: no training fact would be left; a run needs at least one")

    is_accepted = KnownAnswers.build(Slot.TAIL, added, wider.n_entities).contain(graph.rejected)
    was_rejected = wider.rejected_answers(Slot.TAIL).contain(facts_to_remove)
    rejected, accepted = facts_to_remove[~was_rejected], graph.rejected[is_accepted]
    all_rejected = Triples.cat([graph.rejected[~is_accepted], rejected])
    if count := len(accepted):
        notes.append(f"{count:,} added facts were recorded as false before; now they are not")
    if count := int(was_rejected.sum()):
        notes.append(f"{count:,} facts to remove were recorded as false already")
    changed = replace(wider, train=train, valid=splits["valid"], test=splits["test"], rejected=all_rejected)
    removed = graph.train[removed_rows["train"]]
    return GraphChange(graph, changed, added, removed, rejected, accepted, removed_rows, tuple(notes))


def _add_names(graph: Graph, add: Graph | None, notes: list[str]) -> tuple[Graph, Triples]:
    """The graph with the unknown names of facts, and those facts in its ids."""
    if add is None:
        return graph, graph.train[:0]
    facts = add.facts()
    entities, entity_ids = _extend(graph.entities, add.entities, torch.cat([facts.head, facts.tail]), notes)
    relations, relation_ids = _extend(graph.relations, add.relations, facts.relation, notes)
    facts = replace(
        facts, head=entity_ids[facts.head], relation=relation_ids[facts.relation], tail=entity_ids[facts.tail]
    )
    return replace(graph, entities=entities, relations=relations), facts


def _extend(known: Vocabulary, given: Vocabulary, used: Tensor, notes: list[str]) -> tuple[Vocabulary, Tensor]:
    """`known` extended by the used names of `given`, new ones last; and the id in it of each given name."""
    ids, new = torch.full((len(given),), -1), list[int]()
    for position in used.unique().tolist():
        name = given.ids[position]
        if name in known:
            ids[position] = known.index(name)  # an error if several have this name
        else:
            ids[position] = len(known) + len(new)
            new.append(position)
    if not new:
        return known, ids
    if len(known) <= 10_000:  # a name close to a known one may be a typo
        alike = [(given.name(p), known.nearest(given.name(p), 1)) for p in new[:NAMES_IN_NOTE]]
        notes.extend(f"'{name}' is new; if you meant '{near[0]}', undo this" for name, near in alike if near)
    labels = None
    if known.labels is not None or given.labels is not None:
        labels = [*known.names, *(given.name(position) for position in new)]
    return Vocabulary([*known.ids, *(given.ids[position] for position in new)], labels, known.kind), ids


def _known_facts(graph: Graph, facts: Graph | None, on_bad: OnBad, notes: list[str]) -> Triples:
    """Translate facts into the ids of a graph; an unknown name is an error, or its fact is skipped with a note."""
    if facts is None:
        return graph.train[:0]
    given = facts.facts()
    entity, unknown_entity = _match(graph.entities, facts.entities, torch.cat([given.head, given.tail]), on_bad)
    relation, unknown_relation = _match(graph.relations, facts.relations, given.relation, on_bad)
    matched = Triples(entity[given.head], relation[given.relation], entity[given.tail])
    is_known = (matched.to_rows() >= 0).all(1)
    if count := len(matched) - int(is_known.sum()):
        names = ", ".join([*unknown_entity, *unknown_relation][:NAMES_IN_NOTE])
        notes.append(f"skipped {count:,} facts to remove with unknown names: {names}")
    return matched[is_known]


def _match(known: Vocabulary, given: Vocabulary, used: Tensor, on_bad: OnBad) -> tuple[Tensor, list[str]]:
    """The id of each used name, -1 for an unknown one that may be skipped; and the unknown names."""
    ids, unknown = torch.full((len(given),), -1), list[str]()
    for position in used.unique().tolist():
        try:
            ids[position] = known.index(given.ids[position])
        except HarmoniumError as error:
            if on_bad == "error":
                raise HarmoniumError(f"facts to remove: {error}") from error
            unknown.append(given.ids[position])
    return ids, unknown


def _check_contradictions(graph: Graph, added: Triples, removed: Triples) -> None:
    both = added[KnownAnswers.build(Slot.TAIL, removed, graph.n_entities).contain(added)]
    if len(both):
        example = " - ".join(graph.names_of(both[:1])[0])
        raise HarmoniumError(
            f"{len(both):,} facts are to be both added and removed, such as {example}; leave them out of one of the two"
        )


# Undo ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GraphSizes:
    """Sizes of the vocabularies before a change: what undoing it needs besides facts."""

    entities: schema.Count
    relations: schema.Count
    train: schema.Count
    entity_labels: bool
    relation_labels: bool
    weighted: bool

    @classmethod
    def of(cls, graph: Graph) -> GraphSizes:
        labels = graph.entities.labels is not None, graph.relations.labels is not None
        sizes = graph.n_entities, graph.n_relations, len(graph.train)
        return cls(*sizes, *labels, graph.train.weight is not None)


def to_tensors(change: GraphChange) -> dict[str, Tensor]:
    """The facts that `restore_graph` needs, as tensors to save."""
    tensors = {f"{split}.rows": rows for split, rows in change.removed_rows.items()}
    parts = {split: facts[change.removed_rows[split]] for split, facts in change.before.splits.items()}
    parts |= {"rejected": change.before.rejected, "added": change.added}
    for name, facts in parts.items():
        tensors |= {f"{name}.{slot.value}": facts[slot] for slot in Slot}
        tensors |= {} if facts.weight is None else {f"{name}.weight": facts.weight}
    return tensors


def check_tensors(tensors: Mapping[str, Tensor], graph: Graph) -> None:
    """Raise a ValueError unless these are tensors of `to_tensors`, of a change that led to this graph."""
    parts = (*SPLITS, "rejected", "added")
    expected = [f"{part}.{slot.value}" for part in parts for slot in Slot] + [f"{split}.rows" for split in SPLITS]
    if missing := [name for name in expected if name not in tensors]:
        raise ValueError(f"{missing[0]} is missing")
    for name in parts:
        read_columns(tensors, name, graph.n_entities, graph.n_relations)
    for split in SPLITS:
        rows = tensors[f"{split}.rows"]
        if rows.dtype != torch.int64 or rows.shape != tensors[f"{split}.head"].shape or (rows < 0).any():
            raise ValueError(f"{split}.rows are not the rows of the removed facts")


def read_facts(tensors: Mapping[str, Tensor], name: str) -> Triples:
    """Facts that `to_tensors` stored: those removed from a split, "added", or "rejected" before the change."""
    head, relation, tail = (tensors[f"{name}.{slot.value}"] for slot in Slot)
    return Triples(head, relation, tail, tensors.get(f"{name}.weight"))


def restore_graph(graph: Graph, sizes: GraphSizes, tensors: Mapping[str, Tensor]) -> Graph:
    """The graph before a change, from the graph afterwards."""
    splits = []
    for split in SPLITS:
        kept, removed, rows = graph.splits[split], read_facts(tensors, split), tensors[f"{split}.rows"]
        if split == "train":
            kept = kept[: sizes.train - len(rows)]
            kept = kept if sizes.weighted else replace(kept, weight=None)
        splits.append(_insert(kept, removed, rows) if len(rows) else kept)
    entities = _shorten(graph.entities, sizes.entities, sizes.entity_labels)
    relations = _shorten(graph.relations, sizes.relations, sizes.relation_labels)
    rejected = read_facts(tensors, "rejected")
    train, valid, test = splits
    return Graph(entities, relations, train, valid, test, graph.name, graph.notes, rejected, graph.reading)


def _insert(kept: Triples, removed: Triples, rows: Tensor) -> Triples:
    """All facts in their order before the change: removed ones are inserted at their old rows."""
    is_removed = torch.zeros(len(kept) + len(removed), dtype=torch.bool)
    is_removed[rows] = True
    order = torch.empty(len(is_removed), dtype=torch.int64)
    order[is_removed], order[~is_removed] = len(kept) + torch.arange(len(removed)), torch.arange(len(kept))
    return Triples.cat([kept, removed])[order]


def _shorten(vocabulary: Vocabulary, size: int, has_labels: bool) -> Vocabulary:
    if size == len(vocabulary) and has_labels == (vocabulary.labels is not None):
        return vocabulary
    labels = vocabulary.labels[:size] if has_labels and vocabulary.labels is not None else None
    return Vocabulary(vocabulary.ids[:size], labels, vocabulary.kind)
