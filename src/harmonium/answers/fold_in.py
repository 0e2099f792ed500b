"""Fold-in: vectors for entities never seen in training, solved from a few facts; every other parameter stays as it is.

The new vectors minimise the training loss with all else fixed: for a linear form, a softmax regression per entity. In
training an entity is part of its own facts and sometimes a negative of other facts, which teaches it where it does not
belong. Fold-in does the same, with the same weight per fact. New vectors start at the mean of the entities that fill
the same slots of the same relations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.data.datasets import load
from harmonium.data.graph import Graph, Note
from harmonium.data.skipped_rows import OnBad
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.evaluation.evaluation import evaluate_with_baselines
from harmonium.model.gradient_graph import GradientGraph
from harmonium.run.run import Run, open_run
from harmonium.runtime.config import TrainConfig
from harmonium.runtime.displayed import Displayed, one_line
from harmonium.runtime.errors import HarmoniumError
from harmonium.runtime.folders import reserve
from harmonium.training.losses import contrastive_loss, contrastive_scores
from harmonium.training.negatives import SIDES, draw_negatives
from harmonium.training.regularisers import regularisation
from harmonium.training.step import distinct_entities

MIN_EPOCHS, MIN_STEPS = 10, 200
BATCH = 512
MIN_NEGATIVES = 256  # per fact and side; more help, all entities would cost too much
KNOWN_FACTS, KNOWN_NEGATIVES, NEW_AMONG_NEGATIVES = 32, 64, 4  # at most, in each step
LEARNING_RATE = 0.3  # times the root mean square of the start vectors; decays linearly to zero


def add(
    run: Run | str | Path,
    facts: Any,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
    **reading: Any,
) -> tuple[Run, FoldIn]:
    """Add entities never seen in training, from a few facts about them; every other vector stays as it is.

    `facts` are a file of head, relation, tail or anything else that `load` reads, with new names beside known ones;
    relations must be known. `reading` are options of `load`: on_bad="skip" leaves out bad rows and unknown relations.

    >>> harmonium.add("runs/demo", "facts.tsv", out="runs/more")[1].names
    """
    run = open_run(run)
    if out is not None:
        reserve(out, overwrite)
    new_facts = load(facts, valid=0, test=0, **reading)
    fold_in = extend(run.graph, new_facts, reading.get("on_bad", "error"))
    model = add_entities(run.model, fold_in, run.config.train, progress)
    evaluation = evaluate_with_baselines(model, fold_in.graph, run.config.evaluate)
    extended = replace(run, graph=fold_in.graph, model=model, evaluation=evaluation)
    return replace(extended, path=extended.save(out, overwrite) if out is not None else None), fold_in


@dataclass(frozen=True)
class FoldIn(Displayed):
    """A graph with new entities, which come last, and the facts they are solved from."""

    graph: Graph
    facts: Triples  # those with a new entity, in the ids of the graph
    first: int  # id of the first new entity
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return one_line(self, f"{self.graph.n_entities - self.first:,} new entities", *self.names[:3])

    @property
    def names(self) -> list[str]:
        """Of the new entities."""
        return [self.graph.entities.name(index) for index in range(self.first, self.graph.n_entities)]


def extend(graph: Graph, new_facts: Graph, on_bad: OnBad = "error") -> FoldIn:
    """Add the training facts of another graph; entities are matched by identifier or name, the others are new."""
    new_facts, skipped = _with_known_relations(graph, new_facts, on_bad)
    vocabulary, names = graph.entities, new_facts.entities.ids
    used = set(torch.cat([new_facts.train.head, new_facts.train.tail]).unique().tolist())
    new = [position for position, name in enumerate(names) if position in used and name not in vocabulary]
    if not new:
        raise HarmoniumError(
            f"{new_facts.name}: all {len(names):,} of its entities are known already, so there is none to add; "
            "train again to learn new facts about known ones"
        )
    first = graph.n_entities
    new_ids = {position: first + number for number, position in enumerate(new)}
    ids = [new_ids[i] if i in new_ids else vocabulary.index(name) if i in used else -1 for i, name in enumerate(names)]
    entity_ids, relation_ids = torch.tensor(ids), torch.tensor(_relation_ids(graph, new_facts))
    given = new_facts.train
    facts = replace(
        given, head=entity_ids[given.head], relation=relation_ids[given.relation], tail=entity_ids[given.tail]
    )
    extended = replace(graph, entities=_extend_vocabulary(vocabulary, new_facts.entities, new))
    is_known = extended.known_answers(Slot.TAIL).contain(facts)
    has_new = (facts.head >= first) | (facts.tail >= first)
    notes = [str(note) for note in (*new_facts.notes, *skipped)]
    if count := int(is_known.sum()):
        notes.append(f"{count:,} facts were known already and ignored")
    if count := int((~has_new & ~is_known).sum()):
        notes.append(
            f"{count:,} facts are about known entities only: kept as known facts, nothing is learned from them"
        )
    train = Triples.cat([graph.train, facts[~is_known]])
    extended = replace(extended, train=train, notes=(*graph.notes, *map(Note, notes)))
    return FoldIn(extended, facts[has_new], first, tuple(notes))


def _with_known_relations(graph: Graph, new_facts: Graph, on_bad: OnBad) -> tuple[Graph, list[Note]]:
    """The facts whose relations the graph knows, where others may be skipped, and a note of those that were."""
    names = list(new_facts.relations.ids)
    unknown = [position for position, name in enumerate(names) if name not in graph.relations]
    if on_bad == "error" or not unknown:
        return new_facts, []
    is_known = ~torch.isin(new_facts.train.relation, torch.tensor(unknown))
    kept = torch.tensor([position for position in range(len(names)) if position not in unknown])
    number = torch.full((len(names),), -1).index_put_((kept,), torch.arange(len(kept)))
    train = new_facts.train[is_known]
    count = len(is_known) - len(train)
    if not len(train):
        raise HarmoniumError(f"{new_facts.name}: none of its relations is known: {', '.join(names[:5])}")
    texts = [f"{names[p]}{_suggestion(graph.relations.nearest(names[p], 1))}" for p in unknown[:3]]
    text = f"skipped {count:,} facts of {len(unknown):,} unknown relations: {', '.join(texts)}"
    relations = Vocabulary([names[position] for position in kept.tolist()], None, "relation")
    known = replace(new_facts, relations=relations, train=replace(train, relation=number[train.relation]))
    return known, [Note(text, "skipped rows", "", count)]


def _suggestion(names: Sequence[str]) -> str:
    return f" (did you mean {names[0]}?)" if names else ""


def _relation_ids(graph: Graph, new_facts: Graph) -> list[int]:
    try:
        return [graph.relations.index(name) for name in new_facts.relations.ids]
    except HarmoniumError as error:
        raise HarmoniumError(f"{error}. Entities can be added, relations cannot: train again for those") from error


def _extend_vocabulary(vocabulary: Vocabulary, other: Vocabulary, positions: Sequence[int]) -> Vocabulary:
    """The vocabulary with some names of another one at its end."""
    labels = None
    if vocabulary.labels is not None or other.labels is not None:
        labels = [*vocabulary.names, *(other.name(i) for i in positions)]
    return Vocabulary([*vocabulary.ids, *(other.ids[i] for i in positions)], labels, vocabulary.kind)


def add_entities(
    model: GradientGraph, fold_in: FoldIn, settings: TrainConfig, progress: Callable[[int], None] | None = None
) -> GradientGraph:
    """A model with solved rows for the new entities, and all others bit for bit as they were."""
    facts, first, n = fold_in.facts, fold_in.first, fold_in.graph.n_entities
    generator = torch.Generator().manual_seed(settings.seed)
    old_rows, new_rows = model.entity.detach(), start_vectors(model, fold_in).requires_grad_()
    fixed, steps = deepcopy(model).requires_grad_(False), n_steps(len(facts))
    train = fold_in.graph.train
    known_facts = train[(train.head < first) & (train.tail < first)]
    n_negatives, n_new_negatives = min(KNOWN_NEGATIVES, settings.negatives), min(NEW_AMONG_NEGATIVES, n - first)
    # New entities are drawn as negatives of known facts more often than in training; the weight makes up for it.
    weight = len(known_facts) * min(n_negatives / n, 1) * (n - first) / n_new_negatives / len(facts)

    sampled = replace(settings, loss="sampled") if settings.loss == "full" else settings

    def loss(batch: Triples, negatives: dict[Slot, Tensor]) -> Tensor:
        ids, batch, negatives = distinct_entities(batch, negatives)
        n_old = int((ids < first).sum())  # ids are sorted
        rows = torch.cat([old_rows[ids[:n_old]], new_rows[ids[n_old:] - first]])
        scorer = fixed.scorer(rows).for_batch(batch)
        value, penalty = (
            contrastive_loss(contrastive_scores(scorer, negatives), sampled),
            regularisation(scorer, sampled),
        )
        return value if penalty is None else value + penalty

    rate = LEARNING_RATE * new_rows.detach().square().mean().sqrt().item()
    optimiser = torch.optim.Adam([new_rows], lr=rate)
    batches = _shuffled_batches(facts, generator)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = rate * (1 - step / steps)
        batch = next(batches)
        total = loss(batch, draw_negatives(n, len(batch), max(MIN_NEGATIVES, settings.negatives), generator))
        if len(known_facts):
            batch = known_facts[torch.randint(len(known_facts), (KNOWN_FACTS,), generator=generator)]
            negatives = draw_negatives(first, KNOWN_FACTS, n_negatives, generator)
            new = draw_negatives(n - first, KNOWN_FACTS, n_new_negatives, generator)
            for slot in SIDES:
                negatives[slot] = torch.cat([new[slot] + first, negatives[slot][:, n_new_negatives:]], dim=1)
            total = total + weight * loss(batch, negatives)
        optimiser.zero_grad()
        torch.autograd.backward(total)
        optimiser.step()
        if progress:
            progress(1)
    extended = deepcopy(model)
    extended.n_entities, extended.local_rows = n, slice(0, n)
    extended.entity = torch.nn.Parameter(torch.cat([old_rows, new_rows.detach()]))
    return extended


def _shuffled_batches(facts: Triples, generator: torch.Generator) -> Iterator[Triples]:
    while True:
        for rows in torch.split(torch.randperm(len(facts), generator=generator), BATCH):
            yield facts[rows]


def n_steps(n_facts: int) -> int:
    return max(MIN_STEPS, MIN_EPOCHS * math.ceil(n_facts / BATCH))


def start_vectors(model: GradientGraph, fold_in: FoldIn) -> Tensor:
    """(k, dim): for each new entity the mean of the known ones that fill the same slots, at the usual length."""
    first, train, vectors = fold_in.first, fold_in.graph.train, model.entities().detach()
    total = vectors.new_zeros(fold_in.graph.n_entities - first, vectors.shape[1])
    for slot in SIDES:
        known = train[train[slot] < first]
        by_relation = vectors.new_zeros(model.n_relations, vectors.shape[1])
        by_relation.index_add_(0, known.relation, vectors[known[slot]])
        by_relation /= known.relation.bincount(minlength=model.n_relations).clamp(min=1)[:, None]
        new = fold_in.facts[fold_in.facts[slot] >= first]
        total.index_add_(0, new[slot] - first, by_relation[new.relation])
    usual_length: Tensor = torch.linalg.vector_norm(vectors, dim=-1).mean()
    length: Tensor = torch.linalg.vector_norm(total, dim=-1, keepdim=True).clamp(min=1e-12)
    return total / length * usual_length
