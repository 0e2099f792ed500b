"""Known facts in the order of how likely they are wrong: what every surface (Python, command, page, report) shows.

    suspects = find_suspects(open_run("runs/demo"))

Fold vectors are trained, every known fact is judged hidden from itself, artificial errors are judged beside them, and the
error model turns evidence into probabilities. What that found is kept in the run folder, so that it is done once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from harmonium.answers.audit.artificial_errors import KINDS, draw_errors
from harmonium.answers.audit.error_model import ErrorModel, fit_error_model
from harmonium.answers.audit.fold_vectors import FOLDS, FoldVectors, deal_folds
from harmonium.answers.audit.hidden_evidence import BY_CONSTRAINTS, HiddenEvidence, Witness
from harmonium.answers.audit.proposals import Proposal, propose
from harmonium.answers.open_run import OpenRun
from harmonium.data.triples import Triples
from harmonium.errors import HarmoniumError
from harmonium.run import manifest
from harmonium.runtime import schema

FILE, METHOD = "audit.json", 1  # in a run folder; made again when the model, the facts or the method change
MINIMUM = 100  # facts that a graph needs, so that there is something to learn from
ERRORS = 3000  # artificial errors of each kind, and at most SHARE of the facts
SHARE = 0.5
JUDGED = 40_000  # facts that are judged with all evidence; of a larger graph the most suspect ones and a sample
KEPT = 5000  # facts most likely to be wrong that are kept
PROPOSED, FIRST = 0.2, 50  # probability from which on a change is looked for, and in any case for so many facts
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Suspects:
    """The facts of a graph most likely to be wrong, and how many are wrong in all."""

    method: int
    n_facts: schema.Count
    share: schema.NonNegative  # estimated, of wrong facts among all
    low: schema.NonNegative  # 95 % interval of the share
    high: schema.NonNegative
    facts: list[list[int]]  # (head, relation, tail) ids, the most likely to be wrong first
    log_odds: list[float]  # that each is wrong
    proposals: list[
        list[Any]
    ]  # head, relation, tail and kind of change of what was meant; empty where nothing is far better

    @property
    def triples(self) -> Triples:
        return Triples.from_rows(self.facts)

    @property
    def probabilities(self) -> list[float]:
        return [1 / (1 + math.exp(-odds)) for odds in self.log_odds]

    @property
    def meant(self) -> list[Proposal | None]:
        return [Proposal((row[0], row[1], row[2]), row[3]) if row else None for row in self.proposals]


def find_suspects(opened: OpenRun, progress: Progress | None = None) -> Suspects:
    """The suspects of a run, computed once and kept in its folder. `progress` counts what `n_steps` says."""
    run = opened.run
    parse = partial(_parse, n_entities=run.graph.n_entities, n_relations=run.graph.n_relations)
    return manifest.compute_once(run.path, run.fingerprint, FILE, parse, lambda: _find(opened, progress))


def kept_suspects(opened: OpenRun) -> Suspects | None:
    """Those of an audit that was made before; None if there was none."""
    run = opened.run
    parse = partial(_parse, n_entities=run.graph.n_entities, n_relations=run.graph.n_relations)
    return manifest.read_kept(run.path, run.fingerprint, FILE, parse)


def _parse(value: Any, n_entities: int, n_relations: int) -> Suspects | None:
    if not isinstance(value, dict) or value.get("method") != METHOD:
        return None
    kept = schema.read(Suspects, value)
    if not len(kept.facts) == len(kept.log_odds) == len(kept.proposals):
        raise ValueError("lists of other lengths")
    for row in [*kept.facts, *(row[:3] for row in kept.proposals if row)]:
        if len(row) != 3 or not (max(row[0], row[2]) < n_entities and row[1] < n_relations and min(row) >= 0):
            raise ValueError("an id without a name")
    return kept


@dataclass(frozen=True)
class Judged:
    """The known facts that were judged with all evidence, and what they were judged by."""

    rows: Tensor  # (n,) of the facts
    heard: HiddenEvidence
    model: ErrorModel


def _find(opened: OpenRun, progress: Progress | None) -> Suspects:
    graph = opened.graph
    facts = graph.facts().positive()
    if len(facts) < MINIMUM:
        raise HarmoniumError(
            f"'{graph.name}' has {len(facts):,} facts; an audit needs {MINIMUM}, to learn what right ones look like"
        )
    folds = deal_folds(len(facts), FOLDS)
    witness = call_witness(opened, facts, folds, progress)
    judged = judge(witness, facts, folds, progress)
    log_odds = judged.model.log_odds(judged.heard.features)
    order = log_odds.argsort(descending=True, stable=True)[:KEPT]
    log_odds, rows = log_odds[order], judged.rows[order]
    n_likely = max(int((log_odds.sigmoid() >= PROPOSED).sum()), min(FIRST, len(rows)))
    likely = rows[:n_likely]
    meant = propose(witness, judged.model, facts[likely], folds[likely], judged.heard[order[:n_likely]], progress)
    proposals: list[list[Any]] = [[*proposal.triple, proposal.change] if proposal else [] for proposal in meant]
    low, high = judged.model.interval
    odds = [round(value, 4) for value in log_odds.tolist()]
    proposals += [[] for _ in range(len(rows) - n_likely)]
    return Suspects(METHOD, len(facts), judged.model.share, low, high, facts[rows].to_rows().tolist(), odds, proposals)


def call_witness(opened: OpenRun, facts: Triples, folds: Tensor, progress: Progress | None = None) -> Witness:
    """The opened run beside vectors that are trained without each fold, as long as was best for those of the run."""
    run = opened.run
    epochs = run.history.best_epoch or run.config.train.epochs
    return Witness(opened, FoldVectors.train(run.graph, facts, folds, run.config, epochs=epochs, progress=progress))


def judge(witness: Witness, facts: Triples, folds: Tensor, progress: Progress | None = None) -> Judged:
    """All facts; of a large graph a random sample, to learn from, and those that vectors and counts find most suspect."""
    hear = partial(witness.hear, progress=progress)
    parts = [hear(*each).features for each in _errors(witness, facts, folds)]
    errors = torch.cat(parts)
    kind = torch.cat([torch.full((len(part),), number) for number, part in enumerate(parts)])
    if len(facts) <= JUDGED:
        heard = hear(facts, folds, facts)
        return Judged(torch.arange(len(facts)), heard, fit_error_model(heard.features, errors, kind))
    quick = hear(facts, folds, facts, constraints=False).features
    quick_errors = errors.clone()
    quick_errors[:, BY_CONSTRAINTS] = 0
    generator = torch.Generator().manual_seed(1)
    sample = torch.randperm(len(facts), generator=generator)[: JUDGED // 2]
    screening = fit_error_model(quick[sample], quick_errors, kind).log_odds(quick)
    screening[sample] = -torch.inf
    rows = torch.cat([sample, screening.topk(JUDGED - len(sample)).indices])
    heard = hear(facts[rows], folds[rows], facts[rows])
    return Judged(rows, heard, fit_error_model(heard.features[: len(sample)], errors, kind))


def _errors(witness: Witness, facts: Triples, folds: Tensor) -> Iterator[tuple[Triples, Tensor, Triples | None]]:
    """Artificial errors of each kind with the folds and hidden facts by which they are judged.

    A wrong fact may stand beside the right one or in its place: half of the errors are added to the graph, half replace
    the facts that were changed, which are then hidden and judged by vectors that have not seen those.
    """
    graph, generator = witness.opened.graph, torch.Generator().manual_seed(0)
    count = min(ERRORS, int(SHARE * len(facts)))
    fold_of = dict(zip(map(tuple, facts.to_rows().tolist()), folds.tolist(), strict=True))
    for kind in KINDS:
        drawn = draw_errors(kind, facts, graph.n_entities, graph.n_relations, count, generator)
        half = len(drawn) // 2
        if half:
            yield drawn.facts[:half], torch.randint(FOLDS, (half,), generator=generator), None
            replaced = drawn.originals[half:]
            of_originals = torch.tensor([fold_of[tuple(row)] for row in replaced.to_rows().tolist()])
            yield drawn.facts[half:], of_originals, replaced
