"""Evaluation: the metrics of a scorer on a split of a graph, with the protocol that made them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, NotRequired, TypedDict

import torch
from torch import Tensor

from harmonium.config.setting_values import build
from harmonium.config.settings import EvaluateConfig
from harmonium.data.graph import SPLITS, Graph
from harmonium.data.triples import Slot, Triples
from harmonium.errors import HarmoniumError
from harmonium.evaluation.baselines import Frequency, RuleBaseline
from harmonium.evaluation.display import interval_rows, metrics_table
from harmonium.evaluation.metrics import Estimate, Ranks, read_metrics
from harmonium.evaluation.ranking import rank
from harmonium.model.scoring import Scorer
from harmonium.runtime import schema
from harmonium.runtime.displayed import Displayed, Part, one_line
from harmonium.runtime.distributed import World
from harmonium.runtime.frames import ResultList, Tabular

BASELINE_FACTS = 2000  # ranked by baselines, at most
CATEGORIES = ("1-1", "1-N", "N-1", "N-N")
PARTS = ("side", "category", "relation")  # what metrics can be split by
CANDIDATE_SPLITS = {
    "full": (),
    "typed-train": ("train",),
    "typed-all": SPLITS,
}  # protocol -> splits in which a candidate must occur in the slot
Metrics = dict[str, float]  # by name; metrics of a part also have `queries`, the number of queries


def describe_protocol(protocol: EvaluateConfig, estimate: Estimate | None = None, is_weighted: bool = False) -> str:
    """The protocol in one line, to print beside the metrics."""
    candidates = {
        "full": "all entities are candidates",
        "typed-train": "candidates seen in that slot in train",
        "typed-all": "candidates seen in that slot in train+valid+test (test-aware)",
    }
    parts = [
        f"{protocol.split} {'heads and tails' if protocol.side == 'both' else f'{protocol.side}s'}",
        f"filtered by {'+'.join(SPLITS)}" if protocol.filtered else "unfiltered",
        candidates[protocol.candidates],
        f"{protocol.ties} ties",
        f"unseen entities {protocol.unseen}",
    ]
    parts += ["weighted metrics by the weights of facts"] * is_weighted
    return ", ".join([*parts, estimate.label] if estimate else parts)


@dataclass(frozen=True)
class EvaluationSummary(Displayed):
    """The evaluation that a run stores: metrics of all queries and of parts, with the protocol, without the ranks."""

    graph: str
    protocol: EvaluateConfig
    queries: int
    metrics: Metrics
    by_side: dict[str, Metrics]
    by_category: dict[str, dict[str, Metrics]]  # 1-1, 1-N, N-1 or N-N, then side
    by_relation: dict[str, Metrics]  # in descending order of frequency
    estimate: Estimate | None = None  # if only a sample was ranked
    baselines: dict[str, Metrics] = field(default_factory=dict)  # frequency, rules
    warning: str | None = None  # if the model is not clearly better than a baseline

    def __repr__(self) -> str:
        return one_line(self, f"{self.graph} {self.protocol.split}", *_short(self.metrics), f"{self.queries:,} queries")

    def display(self) -> Iterator[Part]:
        rows = {"model": self.metrics, **interval_rows(self.estimate), **self.by_side}
        yield metrics_table(f"Link prediction on {self.graph}", rows, self.describe())

    def describe(self) -> str:
        """The protocol in one line."""
        return describe_protocol(self.protocol, self.estimate, "weighted_mrr" in self.metrics)

    def to_json(self) -> dict[str, Any]:
        return {
            "graph": self.graph,
            "protocol": asdict(self.protocol) | {"filter": list(SPLITS) if self.protocol.filtered else []},
            "queries": self.queries,
            **({"estimate": self.estimate.to_json()} if self.estimate else {}),
            "metrics": self.metrics,
            "by_side": self.by_side,
            "by_category": self.by_category,
            "by_relation": self.by_relation,
            **({"baselines": self.baselines, "warning": self.warning} if self.baselines else {}),
        }

    @classmethod
    def from_json(cls, value: Any) -> EvaluationSummary:
        """Read what `to_json` made; a ValueError names a missing key or a wrong type."""
        stored = schema.read(_Stored, value)
        protocol = {key: setting for key, setting in stored["protocol"].items() if key != "filter"}
        return cls(
            stored["graph"],
            build(EvaluateConfig, protocol, "protocol"),
            stored["queries"],
            read_metrics(stored["metrics"]),
            _by_name(stored["by_side"], "by_side"),
            {name: _by_name(sides, f"by_category.{name}") for name, sides in stored["by_category"].items()},
            _by_name(stored["by_relation"], "by_relation"),
            Estimate.from_json(stored["estimate"]) if "estimate" in stored else None,
            _by_name(stored.get("baselines", {}), "baselines"),
            stored.get("warning"),
        )


def _short(metrics: Metrics) -> list[str]:
    shown = [name for name in ("mrr", "weighted_mrr", "hits@1", "hits@10") if name in metrics]
    return [f"{name.replace('_', ' ')} {metrics[name]:.3f}" for name in shown]


class _Stored(TypedDict):
    """An evaluation as JSON."""

    graph: str
    protocol: dict[str, Any]
    queries: schema.Count
    estimate: NotRequired[Any]
    metrics: Any
    by_side: dict[str, Any]
    by_category: dict[str, dict[str, Any]]
    by_relation: dict[str, Any]
    baselines: NotRequired[dict[str, Any]]
    warning: NotRequired[str | None]


def _by_name(value: dict[str, Any], key: str) -> dict[str, Metrics]:
    return {name: read_metrics(metrics, f"{key}.{name}") for name, metrics in value.items()}


@dataclass(frozen=True)
class Evaluation(Tabular):
    """The rank of every query. Metrics, of all queries or by side, relation or category, are computed on demand."""

    protocol: EvaluateConfig
    graph: Graph
    ranks: Ranks
    estimate: Estimate | None = None  # if only a sample was ranked
    weights: tuple[float, ...] | None = None  # of a product of experts, unless they are equal

    def __repr__(self) -> str:
        graph = f"{self.graph.name} {self.protocol.split}"
        return one_line(self, graph, *_short(self.metrics), f"{len(self.ranks):,} queries")

    def display(self, title: str = "Link prediction", by: str | None = "side") -> Iterator[Part]:
        """Metrics of all queries, and by side, relation or category (`by`), with the protocol."""
        rows = {f"{'' if self.estimate else 'all '}{len(self.ranks):,} queries": self.metrics}
        rows |= interval_rows(self.estimate)
        if by == "side":
            rows |= self.by_side
        elif by == "relation":
            rows |= {f"{name} ({int(m['queries'])})": m for name, m in self.by_relation.items()}
        elif by == "category":
            for category, sides in self.by_category.items():
                rows |= {f"{category} {side} ({int(m['queries'])})": m for side, m in sides.items()}
        protocol = self.describe()
        if self.weights is not None:
            protocol += f"; weights {', '.join(f'{weight:.3g}' for weight in self.weights)}"
        yield metrics_table(f"{title} on {self.graph.name}", rows, protocol)

    def describe(self) -> str:
        """The protocol in one line."""
        return describe_protocol(self.protocol, self.estimate, self.ranks.weight is not None)

    @cached_property
    def metrics(self) -> Metrics:
        return self.ranks.metrics(self.protocol.ties)

    @cached_property
    def by_side(self) -> dict[str, Metrics]:
        """Metrics of the queries for a head and of those for a tail."""
        return {side: self.ranks[mask].metrics(self.protocol.ties) for side, mask in self._sides().items()}

    @cached_property
    def by_relation(self) -> dict[str, Metrics]:
        """Metrics and number of queries of each tested relation, in descending order of frequency."""
        ids, counts = torch.unique(self.ranks.relation, return_counts=True)
        order, names = ids[counts.argsort(descending=True, stable=True)].tolist(), self.graph.relations.unique_names()
        return {names[index]: self._part(self.ranks.relation == index) for index in order}

    @cached_property
    def by_category(self) -> dict[str, dict[str, Metrics]]:
        """Metrics and number of queries of 1-1, 1-N, N-1 and N-N relations, by side."""
        category = torch.tensor([CATEGORIES.index(name) for name in self.graph.categories()])[self.ranks.relation]
        parts: dict[str, dict[str, Metrics]] = {}
        for number, name in enumerate(CATEGORIES):
            for side, asked in self._sides().items():
                mask = (category == number) & asked
                if mask.any():
                    parts.setdefault(name, {})[side] = self._part(mask)
        return parts

    def _sides(self) -> dict[str, Tensor]:
        """(n,) bool for each evaluated side: which queries are for it."""
        is_head = self.ranks.is_head
        return {side: mask for side, mask in (("head", is_head), ("tail", ~is_head)) if mask.any()}

    def _part(self, mask: Tensor) -> Metrics:
        ranks = self.ranks[mask]
        return {"queries": len(ranks), **ranks.metrics(self.protocol.ties)}

    def records(self) -> list[dict[str, Any]]:
        """Metrics of all queries, then by side, category and relation: columns by, name, side, queries and metrics."""
        rows = [("all", "all", "both", {"queries": len(self.ranks), **self.metrics})]
        rows += [("side", side, side, self._part(mask)) for side, mask in self._sides().items()]
        rows += [("category", name, side, row) for name, both in self.by_category.items() for side, row in both.items()]
        rows += [("relation", name, "both", row) for name, row in self.by_relation.items()]
        label = {"estimated": self.estimate.label} if self.estimate else {}
        return [{"by": by, "name": name, "side": side, **row, **label} for by, name, side, row in rows]

    def parts(self, by: str) -> ResultList[dict[str, Any]]:
        """The rows of `records` for each side, category or relation."""
        rows = [{key: value for key, value in row.items() if key != "by"} for row in self.records() if row["by"] == by]
        return ResultList(rows, f"Link prediction on {self.graph.name} by {by}")

    def summary(self, baselines: dict[str, Metrics] | None = None, warning: str | None = None) -> EvaluationSummary:
        """The summary that a run stores, with metrics of baselines."""
        return EvaluationSummary(
            self.graph.name, self.protocol, len(self.ranks), self.metrics, self.by_side, self.by_category,
            self.by_relation, self.estimate, baselines or {}, warning,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        weights = {"weights": list(self.weights)} if self.weights else {}
        return self.summary().to_json() | weights


def evaluate_scorer(
    scorer: Scorer,
    graph: Graph,
    protocol: EvaluateConfig | None = None,
    triples: Triples | None = None,
    chunk: int | None = None,
    device: torch.device | str = "cpu",
    progress: Callable[[int], None] | None = None,
    world: World | None = None,
) -> Evaluation:
    """Rank a split (or a sample of it, or the given triples) under a protocol; the processes of a `world` share the work."""
    protocol = protocol or EvaluateConfig()
    triples, total = _select_facts(graph, protocol, triples)
    sampled = len(triples) < total
    local = triples if world is None else triples[world.batch_slice(len(triples))]
    splits = CANDIDATE_SPLITS[protocol.candidates]
    parts: list[Ranks] = []
    for slot in (Slot.HEAD, Slot.TAIL):
        if protocol.side not in ("both", slot.value):
            continue
        known = graph.known_answers(slot, queries=triples).to(device) if protocol.filtered else None
        candidates = graph.slot_candidates(slot, splits).to(device) if splits else None
        ranks = [rank(scorer, local.to(device), slot, known, candidates, chunk, progress)] if len(local) else []
        parts += ranks if world is None else chain(*world.all_gather(ranks))
    all_ranks = Ranks.cat(parts).with_weights(triples)
    protocol = protocol if sampled else replace(protocol, sample=None)
    estimate = Estimate.from_ranks(all_ranks, protocol.ties, len(triples), total) if sampled else None
    return Evaluation(protocol, graph, all_ranks, estimate=estimate)


def _select_facts(graph: Graph, protocol: EvaluateConfig, triples: Triples | None) -> tuple[Triples, int]:
    """The facts to rank, and the number they were drawn from. Given triples are never sampled."""
    sample = protocol.sample if triples is None else None
    triples = graph.split(protocol.split) if triples is None else triples
    triples = _rankable(graph, triples, protocol)
    if not len(triples):
        raise HarmoniumError(f"no {protocol.split} facts are left to rank; set unseen=keep, or choose another split")
    return triples if sample is None else draw_facts(triples, sample), len(triples)


def draw_facts(triples: Triples, count: int) -> Triples:
    """A random sample of `count` facts in their order, equal for every model; all facts if there are no more."""
    order = torch.randperm(len(triples), generator=torch.Generator().manual_seed(0))
    return triples[order[:count].sort().values]


def _rankable(graph: Graph, triples: Triples, protocol: EvaluateConfig) -> Triples:
    return triples[~graph.unseen(triples)] if protocol.unseen == "drop" else triples


def evaluate_with_baselines(
    scorer: Scorer,
    graph: Graph,
    protocol: EvaluateConfig,
    baseline_facts: int = BASELINE_FACTS,
    progress: Callable[[int], None] | None = None,
    world: World | None = None,
) -> EvaluationSummary | None:
    """Evaluate a model and two baselines (frequency, one-step rules) on the split of the protocol, for storing in a run.

    If that split has no facts to rank, valid is used; if that is empty too, the result is None. Baselines rank a random
    sample of at most `baseline_facts` facts; their metrics have the number of queries as `queries`. The processes of a
    `world` share the queries or, if candidates are sharded, the candidates.
    """
    world = None if scorer.world is not None else world
    rankable = [s for s in (protocol.split, "valid") if len(_rankable(graph, graph.splits[s], protocol))]
    if not rankable:
        return None
    protocol = replace(protocol, split=rankable[0])
    evaluation = evaluate_scorer(scorer, graph, protocol, progress=progress, world=world)
    facts = draw_facts(_select_facts(graph, protocol, None)[0], baseline_facts)
    whole = len(facts) == len(evaluation.ranks) // (2 if protocol.side == "both" else 1)
    model = evaluation if whole else evaluate_scorer(scorer, graph, protocol, facts, world=world)
    baselines, warnings = {}, []
    for name, baseline in (("frequency", Frequency(graph)), ("rules", RuleBaseline(graph))):
        ranked = evaluate_scorer(baseline, graph, protocol, facts, world=world)
        baselines[name] = ranked.metrics | {"queries": len(ranked.ranks)}
        warnings += _doubts(name, model, ranked)
    return evaluation.summary(baselines, "; ".join(warnings) or None)


def _doubts(name: str, model: Evaluation, baseline: Evaluation) -> list[str]:
    """A warning if the mean reciprocal rank is not at least two standard errors above that of a baseline."""
    ties = model.protocol.ties
    difference = 1 / model.ranks.values(ties).cpu() - 1 / baseline.ranks.values(ties).cpu()
    error = float(difference.std()) / math.sqrt(len(difference)) if len(difference) > 1 else math.inf
    if float(difference.mean()) > 2 * error:
        return []
    mrr = f"MRR {model.metrics['mrr']:.3f} against {baseline.metrics['mrr']:.3f}"
    return [f"the model is not clearly better than the {name} baseline ({mrr} on {len(difference):,} queries)"]
