"""New entities without training again: solve for their vectors from a few facts, and leave everything else untouched.

The vectors of entities never seen minimise the loss that training minimised, with all other parameters fixed: for a linear
form a softmax regression per entity. In training an entity is part of its own facts and, by chance, a corruption of the
others, which teaches it where it does not belong; so it is here, as often for each of its facts. They start at the mean of
the entities that stand in the same places of the same relations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import repeat

import torch
from torch import Tensor

from harmonium.config import TrainConfig
from harmonium.errors import HarmoniumError
from harmonium.graph import Graph, Slot, Triples, Vocabulary
from harmonium.model import GradientGraph
from harmonium.objective import CONTRASTIVE, SIDES, contrast, draw_negatives, n3
from harmonium.stepping import touched_rows

EPOCHS, STEPS = 10, 200  # at least so many of each
BATCH = 512
NEGATIVES = 256  # at least so many for each fact and side: more help, all entities would cost too much
KNOWN, AGAINST, MET = 32, 64, 4  # known facts a step, their corruptions, new entities among those: at most
RATE = 0.3  # the first step of a coordinate, as a share of its usual size; falls in a line to zero


@dataclass(frozen=True)
class Addition:
    """A graph with new entities, which come last, and what was done with the facts given."""

    graph: Graph
    facts: Triples  # the ones that speak of a new entity, in the ids of the graph
    first: int  # the id of the first new entity
    notes: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """Of the new entities."""
        return [self.graph.entities.name(index) for index in range(self.first, self.graph.n_entities)]


def extend(graph: Graph, given: Graph) -> Addition:
    """The training facts of another graph put into this one; entities are known by identifier or name, or new."""
    first, known = graph.n_entities, [_find(graph.entities, text) for text in given.entities.ids]
    new = [place for place, index in enumerate(known) if index is None]
    if not new:
        raise HarmoniumError(
            f"{given.name}: all {len(known):,} of its entities are known already, so there is none to add; "
            "train again to learn new facts about known ones"
        )
    ids = dict(zip(new, range(first, first + len(new)), strict=True))
    places = torch.tensor([ids.get(place, index) for place, index in enumerate(known)])
    relations = torch.tensor([_relation(graph.relations, text) for text in given.relations.ids])
    facts = Triples(places[given.train.head], relations[given.train.relation], places[given.train.tail])
    wider = replace(graph, entities=_longer(graph.entities, given.entities, new))
    stale = wider.answers(Slot.TAIL).contain(facts)
    about = (facts.head >= first) | (facts.tail >= first)
    notes = []
    if stale.any():
        notes.append(f"{int(stale.sum()):,} facts were known already and left out")
    if (old := ~about & ~stale).any():
        notes.append(
            f"{int(old.sum()):,} facts are about known entities alone: kept as known facts, nothing is learned"
        )
    wider = replace(wider, train=Triples.cat([graph.train, facts[~stale]]), notes=(*graph.notes, *notes))
    return Addition(wider, facts[about], first, tuple(notes))


def _find(vocabulary: Vocabulary, text: str) -> int | None:
    """The id of a name, or none; a name that several share is an error."""
    return vocabulary.index(text) if text in vocabulary else None


def _relation(vocabulary: Vocabulary, text: str) -> int:
    try:
        return vocabulary.index(text)
    except HarmoniumError as error:
        raise HarmoniumError(f"{error}. Entities can be added, relations cannot: train again for those") from error


def _longer(ours: Vocabulary, theirs: Vocabulary, places: Sequence[int]) -> Vocabulary:
    labels = None
    if ours.labels is not None or theirs.labels is not None:
        labels = [*(ours.name(i) for i in range(len(ours))), *(theirs.name(i) for i in places)]
    return Vocabulary([*ours.ids, *(theirs.ids[i] for i in places)], labels, ours.kind)


def add_entities(
    model: GradientGraph, addition: Addition, settings: TrainConfig, watch: Callable[[int], None] | None = None
) -> GradientGraph:
    """A model with the rows of the new entities solved for, and all others as they were, to the bit."""
    facts, first, n = addition.facts, addition.first, addition.graph.n_entities
    generator = torch.Generator().manual_seed(settings.seed)
    frozen, rows = model.entity.detach(), start(model, addition).requires_grad_()
    fixed, steps = deepcopy(model).requires_grad_(False), rounds(len(facts))
    others = addition.graph.train[(addition.graph.train.head < first) & (addition.graph.train.tail < first)]
    against, meet = min(AGAINST, settings.negatives), min(MET, n - first)
    weight = len(others) * min(against / n, 1) * (n - first) / meet / len(facts)

    def loss(batch: Triples, negatives: dict[Slot, Tensor]) -> Tensor:
        ids, batch, negatives = touched_rows(batch, negatives)
        old = int((ids < first).sum())  # ids rise
        snapshot = fixed.snapshot(torch.cat([frozen[ids[:old]], rows[ids[old:] - first]]))
        kind = CONTRASTIVE["sampled" if settings.loss == "full" else settings.loss]
        value = kind(contrast(snapshot, batch, negatives), settings.margin)
        return value + settings.n3 * n3(snapshot, batch) if settings.n3 else value

    usual = rows.detach().square().mean().sqrt().item()
    optimiser = torch.optim.Adam([rows], lr=RATE * usual)
    order = (part for _ in repeat(None) for part in torch.randperm(len(facts), generator=generator).split(BATCH))
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = RATE * usual * (1 - step / steps)
        batch = facts[next(order)]
        value = loss(batch, draw_negatives(n, len(batch), max(NEGATIVES, settings.negatives), generator))
        if len(others):
            batch = others[torch.randint(len(others), (KNOWN,), generator=generator)]
            negatives = draw_negatives(first, KNOWN, against, generator)
            met = draw_negatives(n - first, KNOWN, meet, generator)
            negatives = {slot: torch.cat([met[slot] + first, negatives[slot][:, meet:]], dim=1) for slot in SIDES}
            value = value + weight * loss(batch, negatives)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        if watch:
            watch(1)
    wider = deepcopy(model)
    wider.n_entities, wider.entity = n, torch.nn.Parameter(torch.cat([frozen, rows.detach()]))
    return wider


def rounds(facts: int) -> int:
    """How many steps solving takes."""
    return max(STEPS, EPOCHS * math.ceil(facts / BATCH))


def start(model: GradientGraph, addition: Addition) -> Tensor:
    """(k, dim): for each new entity the mean of the known ones that stand in the same places, at their usual length."""
    first, train, table = addition.first, addition.graph.train, model.entities().detach()
    total = table.new_zeros(addition.graph.n_entities - first, table.shape[1])
    for slot in SIDES:
        known = train[train[slot] < first]
        places = table.new_zeros(model.n_relations, table.shape[1]).index_add_(0, known.relation, table[known[slot]])
        places /= known.relation.bincount(minlength=model.n_relations).clamp(min=1)[:, None]
        new = addition.facts[addition.facts[slot] >= first]
        total.index_add_(0, new[slot] - first, places[new.relation])
    usual = table.norm(dim=-1).mean()
    return total / total.norm(dim=-1, keepdim=True).clamp(min=1e-12) * usual
