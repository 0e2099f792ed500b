"""Names that differ only in whitespace, case or punctuation: found, and united where the user asks for it.

Rare spellings of relations become the usual one where bad rows are skipped, as they are in messy files. Entities are left
as they are: Polish is not polish.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from harmonium.data.graph import Graph, Note
from harmonium.data.names import clean_name
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError

USUAL = 10  # times as many facts has the usual spelling of a relation as a rare one
EXAMPLES = 3  # shown in a note
MAX_NAMES = 1_000_000  # compared
DIFFERENCES = ("whitespace", "case", "punctuation")  # whitespace: and Unicode form
MARKS = re.compile(r"['\u2019`]|(?<!\d)\.|\.(?!\d)")  # within words: U.S.A. is USA, but 1.5 is not 15
GAPS = re.compile(r"[\s_\-\u2010-\u2015,]+")  # between words; other signs count: C++ is not C#


def simplify(name: str, differences: Sequence[str] = DIFFERENCES) -> str:
    """The name without these differences: equal for names that differ in nothing else."""
    simple = name
    if "whitespace" in differences:
        simple = clean_name(unicodedata.normalize("NFKC", clean_name(simple)))
    if "punctuation" in differences:
        simple = GAPS.sub(" ", MARKS.sub("", simple)).strip() or simple
    return simple.casefold() if "case" in differences else simple


def read_differences(text: str | Sequence[str]) -> tuple[str, ...]:
    """Kinds of differences by name: whitespace, case, punctuation, or all."""
    words = [word.strip() for word in (text.split(",") if isinstance(text, str) else text)]
    if unknown := [word for word in words if word not in (*DIFFERENCES, "all")]:
        raise HarmoniumError(f"names are united by {', '.join(DIFFERENCES)} or all, not by '{unknown[0]}'")
    return DIFFERENCES if "all" in words else tuple(word for word in DIFFERENCES if word in words)


def unite_names(graph: Graph, differences: Sequence[str]) -> tuple[Graph, dict[str, list[dict[str, Any]]]]:
    """A graph in which entities, and relations, that differ only in these are one; and which were united.

    The spelling with most facts stays. Repeated facts that come of it are dropped within each split.
    """
    facts = graph.facts()
    of_entities = torch.cat([facts.head, facts.tail]).bincount(minlength=graph.n_entities)
    entities, entity, united_entities = _unite(graph.entities, of_entities, differences)
    of_relations = facts.relation.bincount(minlength=graph.n_relations)
    relations, relation, united_relations = _unite(graph.relations, of_relations, differences)
    splits = []
    for triples in (*graph.splits.values(), graph.rejected):
        head, tail = entity[triples.head], entity[triples.tail]
        ids = replace(triples, head=head, relation=relation[triples.relation], tail=tail)
        splits.append(ids[_first_rows(ids.to_rows())])
    train, valid, test, rejected = splits
    united = Graph(entities, relations, train, valid, test, graph.name, graph.notes, rejected)
    return united, {"entities": united_entities, "relations": united_relations}


def _unite(
    vocabulary: Vocabulary, counts: Tensor, differences: Sequence[str]
) -> tuple[Vocabulary, Tensor, list[dict[str, Any]]]:
    """A vocabulary of the usual spellings, the new id (n,) of each old one, and what was united."""
    usual, united = torch.arange(len(vocabulary)), []
    for group in alike(vocabulary.ids, differences):
        best = max(group, key=lambda index: (int(counts[index]), -index))
        usual[torch.tensor(group)] = best
        others = [vocabulary.ids[index] for index in group if index != best]
        united.append({"kept": vocabulary.ids[best], "united": others})
    kept, number = usual.unique(return_inverse=True)
    ids = [vocabulary.ids[index] for index in kept.tolist()]
    labels = None if vocabulary.labels is None else [vocabulary.labels[index] for index in kept.tolist()]
    return Vocabulary(ids, labels, vocabulary.kind), number, united


def _first_rows(rows: Tensor) -> Tensor:
    """(n,) bool: whether each row (n, 3) is the first of its kind."""
    number = rows.unique(dim=0, return_inverse=True)[1] if len(rows) else rows[:, 0]
    order = number.argsort(stable=True)
    is_first = torch.ones(len(rows), dtype=torch.bool)
    is_first[order[1:]] = number[order[1:]] != number[order[:-1]]
    return is_first


def spelling_key(name: str) -> str:
    """The same for directedBy, DIRECTED_BY and directed-by."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return " ".join(re.split(r"[\s_-]+", words)).strip().casefold()


def alike(names: Sequence[str], differences: Sequence[str] | None = None) -> list[list[int]]:
    """Groups of two or more names that differ only in these; by default in spelling (`spelling_key`)."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, name in enumerate(names if differences or len(names) <= MAX_NAMES else ()):
        groups[spelling_key(name) if differences is None else simplify(name, differences)].append(index)
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
        splits[split] = replace(triples, relation=number[triples.relation])
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
