"""Names that differ only in case, underscores and the like: rare spellings of relations become the usual one.

Done where bad rows are skipped, as they are in messy files. Entities are left as they are: Polish is not polish.
"""

import re
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from harmonium.data.graph import Note
from harmonium.data.triples import Triples

USUAL = 10  # times as many facts has the usual spelling of a relation as a rare one
EXAMPLES = 3  # shown in a note
MAX_NAMES = 1_000_000  # compared


def spelling_key(name: str) -> str:
    """The same for directedBy, DIRECTED_BY and directed-by."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return " ".join(re.split(r"[\s_-]+", words)).strip().casefold()


def alike(names: Sequence[str]) -> list[list[int]]:
    """Groups of two or more names that differ only in spelling."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, name in enumerate(names if len(names) <= MAX_NAMES else ()):
        groups[spelling_key(name)].append(index)
    return [group for group in groups.values() if len(group) > 1]


def unite_relations(splits: dict[str, Triples], names: Sequence[str]) -> tuple[list[str], list[Note]]:
    """Give rare spellings of a relation the id of the usual one, in place; the names left, and what to tell the user."""
    counts = sum(triples.relation.bincount(minlength=len(names)) for triples in splits.values())
    assert isinstance(counts, Tensor), "there is a split"
    usual = list(range(len(names)))
    for group in alike(names):
        best = max(group, key=lambda relation: int(counts[relation]))
        for relation in group:
            if relation != best and counts[best] >= USUAL * counts[relation]:
                usual[relation] = best
    rare = [relation for relation, other in enumerate(usual) if relation != other]
    if not rare:
        return list(names), []
    kept, number = torch.tensor(usual).unique(return_inverse=True)
    for split, triples in splits.items():
        splits[split] = Triples(triples.head, number[triples.relation], triples.tail)
    examples = [f"{names[relation]} ({int(counts[relation]):,}) as {names[usual[relation]]}" for relation in rare]
    shown = ", ".join(examples[:EXAMPLES]) + ", ..." * (len(rare) > EXAMPLES)
    note = Note(f"read {len(rare)} rare spellings of relations as the usual ones: {shown}", "respelled", "", len(rare))
    return [names[relation] for relation in kept.tolist()], [note]


def note_of_alike_entities(names: Sequence[str]) -> list[Note]:
    """A note if entities differ only in spelling, which may be one."""
    groups = alike(names)
    if not groups:
        return []
    examples = [" and ".join(names[index] for index in group[:3]) for group in groups[:EXAMPLES]]
    shown = "; ".join(examples) + "; ..." * (len(groups) > EXAMPLES)
    count = sum(map(len, groups))
    return [
        Note(f"{count:,} entities differ only in case or underscores, and are kept apart: {shown}", "alike", "", count)
    ]
