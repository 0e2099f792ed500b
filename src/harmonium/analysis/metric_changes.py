"""How ranks changed between two runs on the questions that both can be asked, and which changes are more than noise.

Both models rank the same held-out facts among the same candidates: the entities that both graphs have, without the answers
that either graph knows. A fact that one of them was trained on is not compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from harmonium.analysis.graph_changes import Listed
from harmonium.config.settings import EvaluateConfig
from harmonium.data.graph import Graph
from harmonium.data.joint_facts import JointFacts
from harmonium.data.joint_names import JointNames
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.evaluation.evaluation import Metrics, evaluate_scorer
from harmonium.evaluation.metrics import Ranks
from harmonium.evaluation.significance import PairedComparison, compare_paired
from harmonium.model.gradient_graph import GradientGraph
from harmonium.run.run import Run

COMPARED = ("mrr", "hits@1", "hits@3", "hits@10")
HELD_OUT = ("test", "valid")
ALPHA = 0.01  # level of the tests that call a change clear
RELATIONS_ALPHA = 0.05  # of those of all relations together
SAMPLES = 2000  # of the bootstrap
MIN_RELATIONS = 10  # below that many relations facts are resampled instead: signs of so few could not show a change
MIN_FACTS = 5  # of a relation that is compared on its own
MAX_RELATIONS = 40  # compared on their own, those with most facts; RELATIONS_ALPHA / MAX_RELATIONS exceeds 1 / SAMPLES
Progress = Callable[[int], None]


def verdict(comparison: PairedComparison, alpha: float = ALPHA) -> str:
    """What the comparison shows, in words."""
    if comparison.standard_error == 0 and comparison.difference == 0:
        return "the same"
    if max(comparison.p, comparison.sign_flip_p) >= alpha:
        return "no clear change"
    return "better" if comparison.difference > 0 else "worse"


def interval_text(low: float, high: float) -> str:
    """A confidence interval to be read; where too few values differ there is none."""
    return f"{low:+.3f} to {high:+.3f}" if math.isfinite(low) and math.isfinite(high) else "not known"


@dataclass(frozen=True)
class SplitMetrics:
    """Metrics of both runs on the same held-out facts of one split."""

    split: str
    facts: int  # ranked
    of: int  # held out in both
    before: Metrics
    after: Metrics
    comparisons: dict[str, PairedComparison]  # by metric; the first run is the control
    resampled: str  # relations or facts
    better: int  # queries with a better rank in the second run
    worse: int
    by_relation: Listed  # most changed first

    @property
    def queries(self) -> int:
        return 2 * self.facts

    @property
    def is_same(self) -> bool:
        return self.better == self.worse == 0

    @property
    def sentence(self) -> str:
        mrr = self.comparisons["mrr"]
        text = f"{self.split} MRR {mrr.control:.3f} to {mrr.model:.3f}"
        if self.is_same:
            return f"{text}: every rank is the same"
        return f"{text} ({mrr.difference:+.3f}, 95 % interval {interval_text(*mrr.interval)}): {verdict(mrr)}"

    def to_json(self) -> dict[str, Any]:
        verdicts = {name: verdict(comparison) for name, comparison in self.comparisons.items()}
        return asdict(self) | {"verdicts": verdicts, "queries": self.queries, "alpha": ALPHA}


def common_names(names: JointNames) -> tuple[Vocabulary, tuple[Tensor, Tensor], Tensor]:
    """The names of both vocabularies, their ids in each, and the common id (n,) of each joint id, -1 for the others."""
    joint = names.in_both.nonzero()[:, 0]
    ids = joint, names.second_of_joint[joint]
    number = torch.full((len(names),), -1).index_put_((joint,), torch.arange(len(joint)))
    labels = [names.name(index) for index in joint.tolist()] if names.second.labels is not None else None
    vocabulary = Vocabulary([names.identifier(index) for index in joint.tolist()], labels, names.first.kind)
    return vocabulary, ids, number


def restrict(model: GradientGraph, entities: Tensor, relations: Tensor) -> GradientGraph:
    """The model of these entities and relations alone, in this order."""
    is_whole = entities.equal(torch.arange(model.n_entities)) and relations.equal(torch.arange(model.n_relations))
    if is_whole:
        return model
    rows = torch.cat([relations, relations + model.n_relations]) if model.reciprocal else relations
    restricted = deepcopy(model)
    restricted.n_entities, restricted.n_relations = len(entities), len(relations)
    restricted.local_rows = slice(0, len(entities))
    restricted.entity = nn.Parameter(model.entity.detach()[entities])
    restricted.relation = nn.Parameter(model.relation.detach()[rows])
    return restricted


def sample(triples: Triples, count: int, seed: int) -> Triples:
    """A random sample of facts in their order; all of them where there are no more."""
    order = torch.randperm(len(triples), generator=torch.Generator().manual_seed(seed))
    return triples[order[:count].sort().values]


def compare_metrics(
    facts: JointFacts, runs: tuple[Run, Run], limit: int, seed: int, top: int, progress: Progress | None = None
) -> list[SplitMetrics]:
    """The metrics of both runs on at most `limit` common queries of each split that has any."""
    entities, entity_ids, entity_number = common_names(facts.joint.entities)
    relations, relation_ids, relation_number = common_names(facts.joint.relations)

    def translate(triples: Triples) -> Triples:
        """Facts in joint ids in the common ones; those with a name that only one graph has are left out."""
        columns = entity_number[triples.head], relation_number[triples.relation], entity_number[triples.tail]
        return Triples(*columns)[torch.stack(columns).min(0).values >= 0]

    known = translate(facts.triples)
    graph = Graph(entities, relations, known, known[:0], known[:0], "common")
    parts = []
    for split in HELD_OUT:
        held_out = translate(facts.triples[facts.held_out_in_both(split)])
        if len(held_out) < 2:
            continue
        chosen = sample(held_out, max(2, limit // 2), seed)
        ranks = []
        for side, run in enumerate(runs):
            model = restrict(run.model, entity_ids[side], relation_ids[side])
            evaluation = evaluate_scorer(model, graph, EvaluateConfig(), chosen, progress=progress)
            ranks.append(evaluation.ranks)
        parts.append(_compare_split(split, len(held_out), graph, ranks[0], ranks[1], seed, top))
    return parts


def _compare_split(split: str, of: int, graph: Graph, before: Ranks, after: Ranks, seed: int, top: int) -> SplitMetrics:
    """From the ranks of the same queries, (2, facts) flattened."""
    fact = torch.arange(len(before) // 2).repeat(2)
    by_relation = len(before.relation.unique()) >= MIN_RELATIONS
    cluster = before.relation if by_relation else fact
    ranks = before.values(), after.values()
    comparisons = {
        metric: compare_paired(_measure(ranks[1], metric), _measure(ranks[0], metric), cluster, SAMPLES, seed=seed)
        for metric in COMPARED
    }
    return SplitMetrics(
        split,
        len(before) // 2,
        of,
        before.metrics(),
        after.metrics(),
        comparisons,
        "relations" if by_relation else "facts",
        int((ranks[1] < ranks[0]).sum()),
        int((ranks[1] > ranks[0]).sum()),
        _relations(graph, before, after, fact, seed, top),
    )


def _measure(ranks: Tensor, metric: str) -> Tensor:
    """(n,): the value of each query of which the metric is the mean."""
    return ranks.reciprocal() if metric == "mrr" else (ranks <= int(metric.partition("@")[2])).double()


def _relations(graph: Graph, before: Ranks, after: Ranks, fact: Tensor, seed: int, top: int) -> Listed:
    """The MRR of relations with enough facts; Holm's correction keeps the level for all of them together."""
    reciprocal = _measure(before.values(), "mrr"), _measure(after.values(), "mrr")
    ids, counts = before.relation.unique(return_counts=True)
    frequent = ids[counts.argsort(descending=True, stable=True)]
    frequent = frequent[counts.sort(descending=True, stable=True).values >= 2 * MIN_FACTS][:MAX_RELATIONS]
    rows: list[dict[str, Any]] = []
    for relation in frequent.tolist():
        mask = before.relation == relation
        part = compare_paired(reciprocal[1][mask], reciprocal[0][mask], fact[mask], SAMPLES, seed=seed)
        low, high = part.interval
        values = {"before": part.control, "after": part.model, "difference": part.difference, "low": low, "high": high}
        name = {"relation": graph.relations.name(relation), "queries": part.queries}
        rows.append(name | values | {"p": max(part.p, part.sign_flip_p), "verdict": verdict(part, 1.1)})
    is_clear = True
    for number, row in enumerate(sorted(rows, key=lambda row: row["p"])):
        is_clear = is_clear and row["p"] < RELATIONS_ALPHA / (len(rows) - number)
        if not is_clear and row["verdict"] != "the same":
            row["verdict"] = "no clear change"
    order = {"better": 0, "worse": 0, "no clear change": 1, "the same": 2}
    rows.sort(key=lambda row: (order[row["verdict"]], -abs(row["difference"]), row["relation"]))
    return Listed.of(rows, top)
