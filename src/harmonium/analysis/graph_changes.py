"""What changed from one version of a graph to another: names and facts, matched by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from harmonium.data.graph import SPLITS
from harmonium.data.index import hash_ids
from harmonium.data.joint_facts import JointFacts, split_names
from harmonium.data.joint_names import JointGraphs, JointNames
from harmonium.data.triples import Slot, Triples

MIN_SHARED = 2  # facts with known neighbours by which a renamed entity or relation is recognised
KINDS = ("entities", "relations", "facts")


@dataclass(frozen=True)
class Listed:
    """The first rows of a list, and how long it is."""

    count: int
    rows: Sequence[dict[str, Any]]

    @classmethod
    def of(cls, rows: Sequence[dict[str, Any]], top: int) -> Listed:
        return cls(len(rows), rows[:top])

    @property
    def more(self) -> int:
        """Rows that are not shown."""
        return self.count - len(self.rows)


@dataclass(frozen=True)
class GraphChanges:
    """Entities, relations and facts that were added, removed or changed."""

    sizes: dict[str, tuple[int, int]]  # of entities, relations and facts, and of each split where both have splits
    entities: dict[str, Listed]  # added, removed, relabelled, renamed (a guess)
    relations: dict[str, Listed]
    facts: dict[str, Listed]  # added, removed, moved (to another split), reweighted, recorded as false, no longer so
    moves: dict[str, int]  # "train to test" -> facts
    by_relation: Listed  # relations with added, removed or moved facts, most first
    notes: Sequence[str]

    @property
    def is_empty(self) -> bool:
        return not any(part.count for kind in KINDS for part in getattr(self, kind).values())

    @property
    def sentence(self) -> str:
        """The changes in one sentence."""
        if self.is_empty:
            return "the graph is the same"
        texts = []
        for kind in KINDS:
            parts = [f"{part.count:,} {change}" for change, part in getattr(self, kind).items() if part.count]
            texts += [f"{kind}: {', '.join(parts)}"] if parts else []
        return "; ".join(texts)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def change_cells(row: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Name, before and after of a row about a name or a fact."""
    return row.get("text") or row.get("name") or row.get("id") or row["after"], row.get("before"), row.get("after")


def compare_graphs(facts: JointFacts, has_splits: bool = True, top: int = 20) -> GraphChanges:
    """The changes from the first graph to the second; `top` is how many rows lists keep."""
    joint = facts.joint
    changes = {"added": facts.added, "removed": facts.removed, "moved": facts.splits[0] != facts.splits[1]}
    changes["moved"] &= facts.kept if has_splits else torch.zeros_like(facts.kept)
    listed = {change: _fact_rows(facts, rows, has_splits, top) for change, rows in changes.items()}
    listed["reweighted"] = _fact_rows(facts, facts.reweighted, False, top, facts.weights)
    listed |= _false_facts(joint, top)
    notes = [
        f"{names.first.kind} names are matched by label, as no identifier is in both"
        for names in (joint.entities, joint.relations)
        if names.by_label
    ]
    signatures = entity_signatures(facts), relation_signatures(facts)
    return GraphChanges(
        _sizes(facts, has_splits),
        _name_changes(joint.entities, signatures[0], top),
        _name_changes(joint.relations, signatures[1], top),
        listed,
        _moves(facts, changes["moved"]),
        _by_relation(facts, changes, top),
        notes,
    )


def _sizes(facts: JointFacts, has_splits: bool) -> dict[str, tuple[int, int]]:
    first, second = facts.joint.graphs
    sizes = {
        "entities": (first.n_entities, second.n_entities),
        "relations": (first.n_relations, second.n_relations),
        "facts": (int((facts.splits[0] > 0).sum()), int((facts.splits[1] > 0).sum())),
    }
    if has_splits:
        sizes |= {split: (len(first.splits[split]), len(second.splits[split])) for split in SPLITS}
    return sizes


# Facts ----------------------------------------------------------------------------------------------------------------


def _fact_rows(facts: JointFacts, changed: Tensor, has_splits: bool, top: int, values: Tensor | None = None) -> Listed:
    """Changed facts with their splits, or other values (2, n), before and after."""
    positions = changed.nonzero()[:, 0]
    rows: list[dict[str, Any]] = []
    for position, row in zip(positions[:top].tolist(), facts.joint.rows(facts.triples[positions[:top]]), strict=True):
        if values is not None:
            before_after = {"before": float(values[0, position]), "after": float(values[1, position])}
            rows.append(row | before_after)
        elif has_splits:
            masks = facts.splits[:, position].tolist()
            rows.append(row | {"before": split_names(masks[0]) or None, "after": split_names(masks[1]) or None})
        else:
            rows.append(dict(row))
    return Listed(len(positions), rows)


def _false_facts(joint: JointGraphs, top: int) -> dict[str, Listed]:
    """The facts that one of the graphs alone records as false."""
    false = [
        dict.fromkeys(map(tuple, joint.to_joint(side, graph.rejected).to_rows().tolist()))
        for side, graph in enumerate(joint.graphs)
    ]
    only = {
        "recorded as false": [row for row in false[1] if row not in false[0]],
        "no longer recorded as false": [row for row in false[0] if row not in false[1]],
    }
    return {change: Listed(len(rows), joint.rows(Triples.from_rows(rows[:top]))) for change, rows in only.items()}


def _moves(facts: JointFacts, moved: Tensor) -> dict[str, int]:
    pairs = Counter(map(tuple, facts.splits[:, moved].T.tolist()))
    texts = {f"{split_names(old)} to {split_names(new)}": count for (old, new), count in pairs.most_common()}
    return dict(sorted(texts.items(), key=lambda item: (-item[1], item[0])))


def _by_relation(facts: JointFacts, changes: dict[str, Tensor], top: int) -> Listed:
    n = len(facts.joint.relations)
    counts = torch.stack([facts.triples.relation[rows].bincount(minlength=n) for rows in changes.values()])  # (3, n)
    order = counts.sum(0).argsort(descending=True, stable=True)
    order = order[counts.sum(0)[order] > 0]
    rows = [
        {"relation": facts.joint.relations.name(relation)}
        | dict(zip(changes, counts[:, relation].tolist(), strict=True))
        for relation in order[:top].tolist()
    ]
    return Listed(len(order), rows)


# Names ----------------------------------------------------------------------------------------------------------------


def _name_changes(names: JointNames, signatures: tuple[Tensor, Tensor], top: int) -> dict[str, Listed]:
    """Names that were added or removed, labels that changed, and names that may be new names of old ones."""
    ids = torch.arange(len(names))
    added, removed = ids >= len(names.first), names.second_of_joint < 0

    def row(joint: int) -> dict[str, Any]:
        return {"id": names.identifier(joint), "name": names.name(joint)}

    def listed(rows: Tensor) -> Listed:
        positions = rows.nonzero()[:, 0]
        return Listed(len(positions), [row(joint) for joint in positions[:top].tolist()])

    renamed = [
        {"before": names.name(old), "after": names.name(new)}
        for old, new in match_signatures(*signatures, removed, added)
    ]
    return {
        "added": listed(added),
        "removed": listed(removed),
        "relabelled": _relabelled(names, top),
        "renamed": Listed.of(renamed, top),
    }


def _relabelled(names: JointNames, top: int) -> Listed:
    """Names with the same identifier and another label."""
    if names.by_label or (names.first.labels is None and names.second.labels is None):
        return Listed(0, [])
    rows = [
        {"id": names.first.ids[joint], "before": names.first.name(joint), "after": names.name(joint)}
        for joint in names.in_both.nonzero()[:, 0].tolist()
        if names.first.name(joint) != names.name(joint)
    ]
    return Listed.of(rows, top)


def entity_signatures(facts: JointFacts) -> tuple[Tensor, Tensor]:
    """(2, n) twice: a number that entities with the same facts share, before and after, and the facts in it.

    Only facts with a relation and another entity that both graphs have.
    """
    joint = facts.joint

    def add(add_to: Callable[[Tensor, Tensor], None], triples: Triples) -> None:
        for side, (slot, other) in enumerate(((Slot.HEAD, Slot.TAIL), (Slot.TAIL, Slot.HEAD))):
            shared = joint.entities.in_both[triples[other]] & joint.relations.in_both[triples.relation]
            rows = triples[shared]
            add_to(rows[slot], hash_ids(hash_ids(rows[other]) ^ (2 * rows.relation + side)))

    return _signatures(facts, len(joint.entities), add)


def relation_signatures(facts: JointFacts) -> tuple[Tensor, Tensor]:
    """(2, n) twice: the same for relations, by the pairs of entities that they connect."""
    joint = facts.joint

    def add(add_to: Callable[[Tensor, Tensor], None], triples: Triples) -> None:
        rows = triples[joint.entities.in_both[triples.head] & joint.entities.in_both[triples.tail]]
        add_to(rows.relation, hash_ids(hash_ids(rows.head) ^ rows.tail))

    return _signatures(facts, len(joint.relations), add)


def _signatures(
    facts: JointFacts, n: int, add: Callable[[Callable[[Tensor, Tensor], None], Triples], None]
) -> tuple[Tensor, Tensor]:
    signature, count = torch.zeros(2, n, dtype=torch.int64), torch.zeros(2, n, dtype=torch.int64)
    for side in range(2):

        def add_to(ids: Tensor, hashes: Tensor, side: int = side) -> None:
            signature[side].index_add_(0, ids, hashes)
            count[side].index_add_(0, ids, torch.ones_like(ids))

        add(add_to, facts.triples[facts.splits[side] > 0])
    return signature, count


def match_signatures(signature: Tensor, count: Tensor, removed: Tensor, added: Tensor) -> list[tuple[int, int]]:
    """Pairs of a removed and an added id with the same facts, where no other has these."""
    sides: list[dict[int, list[int]]] = []
    for side, rows in enumerate((removed, added)):
        groups: dict[int, list[int]] = {}
        ids = (rows & (count[side] >= MIN_SHARED)).nonzero()[:, 0]
        for joint, value in zip(ids.tolist(), signature[side][ids].tolist(), strict=True):
            groups.setdefault(value, []).append(joint)
        sides.append(groups)
    old, new = sides
    return [(group[0], new[key][0]) for key, group in old.items() if len(group) == len(new.get(key, ())) == 1]
