"""Checks of a graph, each with a finding: repeated facts, leaks into test, redundant relations, unseen and odd names."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from harmonium.data.graph import SPLITS, Graph
from harmonium.data.names import spelling_key
from harmonium.data.relation_rules import MIN_REDUNDANCY, MIN_SUPPORT, RULE_KINDS, relations_by_pair
from harmonium.data.spellings import MAX_NAMES_COMPARED, UNITED, find_spellings
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary

LEVELS = ("ok", "warning", "leaking")
BOUNDS = {  # the share of test facts above which a finding is a warning, and a leak
    "overlap": (0.0, 0.01),
    "redundant": (0.02, 0.2),
    "symmetric": (0.5, 1.0),
    "Cartesian": (0.2, 1.0),
    "unseen": (0.1, 1.0),
}
SHOWN_OF_FINDING = 5  # examples
MARKS = re.compile(r"['\u2019`]|(?<!\d)\.|\.(?!\d)")  # within words: U.S.A. is USA, but 1.5 is not 15
GAPS = re.compile(r"[\s_\-\u2010-\u2015,]+")  # between words; other signs count: C++ is not C#
LOW_WEIGHT = 0.5  # below it a fact counts as doubtful
MAX_QUANTILE_VALUES = 1 << 24  # torch.quantile takes no more


@dataclass(frozen=True)
class Finding:
    """The result of one check: what it counted, how serious that is, what to do."""

    name: str
    text: str
    level: str = "ok"
    advice: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)
    examples: Sequence[str] = ()

    @property
    def sentence(self) -> str:
        """The text; followed by examples unless the level is ok."""
        if self.level == "ok" or not self.examples:
            return self.text
        return f"{self.text}; such as {', '.join(self.examples[:3])}"


def find_all(graph: Graph, split: str, implied: Tensor) -> list[Finding]:
    """Run all checks. `implied` (kinds, n) marks the facts of the split that rules of each kind derive from train."""
    facts = graph.splits[split]
    return [
        *_repeated(graph),
        *_leaks(implied, split),
        _linked_pairs(graph, facts, split),
        *_shapes(graph, facts, split),
        *_unseen(graph),
        _self_loops(graph),
        *_degrees(graph),
        *_weights(graph),
        *_names(graph),
    ]


def _ratio(count: int, total: int, what: str) -> str:
    return f"{count:,} of {total:,} {what} ({count / max(1, total):.1%})"


def _level(kind: str, share: float) -> str:
    warning, leaking = BOUNDS[kind]
    return "leaking" if share > leaking else "warning" if share > warning else "ok"


def _repeated(graph: Graph) -> Iterator[Finding]:
    """Triples that occur more than once: in a split (including those that reading dropped), or in several."""
    known = {split: graph.known_answers(Slot.TAIL, (split,)) for split in SPLITS}
    repeated = {split: len(facts) - len(known[split].index.values) for split, facts in graph.splits.items()}
    dropped = dict.fromkeys(SPLITS, 0)
    for note in graph.notes:
        if note.kind == "repeated":
            dropped[note.split] += note.count
    text = f"{sum(repeated.values()):,} within a split, {sum(dropped.values()):,} more were dropped while reading"
    level, numbers = "warning" if any(repeated.values()) else "ok", {"left": repeated, "dropped": dropped}
    yield Finding("repeated triples", text, level, "drop repeated triples (--clean)", numbers)
    overlaps = {
        f"{split} in {earlier}": int(known[earlier].contain(graph.splits[split]).sum())
        for split, earlier in (("test", "train"), ("valid", "train"), ("test", "valid"))
    }
    share = max(overlaps[f"{split} in train"] / max(1, len(graph.splits[split])) for split in ("valid", "test"))
    level = _level("overlap", share)
    if level == "ok" and overlaps["test in valid"]:
        level = "warning"
    text = _ratio(overlaps["test in train"], len(graph.test), "test facts are also in train")
    text += f"; valid in train {overlaps['valid in train']:,}, test in valid {overlaps['test in valid']:,}"
    advice = "drop from valid and test the facts of earlier splits (--clean)"
    yield Finding("split overlap", text, level, advice, overlaps)


def _leaks(implied: Tensor, split: str) -> Iterator[Finding]:
    """Facts that a confident rule of one step derives from train."""
    n = implied.shape[1]
    counts = dict(zip(RULE_KINDS, implied.sum(1).tolist(), strict=True))
    symmetric = counts.pop("symmetric")
    redundant = int(implied[:-1].any(0).sum())  # symmetric is the last kind
    text = _ratio(redundant, n, f"{split} facts follow from another relation in train")
    text += ": " + ", ".join(f"{kind} {count:,}" for kind, count in counts.items())
    share = redundant / max(1, n)
    advice = "compare results with those of rules alone, and report on a cleaned copy (--clean) too"
    numbers = {**counts, "facts": redundant, "share": share, "with symmetric": int(implied.any(0).sum())}
    yield Finding("redundant relations", text, _level("redundant", share), advice, numbers)
    text = _ratio(symmetric, n, f"{split} facts are a train fact of a symmetric relation, reversed")
    share = symmetric / max(1, n)
    advice = "report symmetric relations apart: a model that learns the symmetry has these answers"
    numbers = {"facts": symmetric, "share": share}
    yield Finding("symmetric leakage", text, _level("symmetric", share), advice, numbers)


def _linked_pairs(graph: Graph, facts: Triples, split: str) -> Finding:
    """Facts whose two entities are connected by any relation in train."""
    n = graph.n_entities
    pairs = (graph.train.head * n + graph.train.tail).unique()
    same = torch.isin(facts.head * n + facts.tail, pairs)
    reverse = torch.isin(facts.tail * n + facts.head, pairs)
    numbers = {"same": int(same.sum()), "reversed": int(reverse.sum()), "either": int((same | reverse).sum())}
    text = _ratio(numbers["either"], len(facts), f"{split} facts connect two entities that train connects")
    text += f": in the same direction {numbers['same']:,}, reversed {numbers['reversed']:,}, by any relation"
    return Finding("linked pairs", text, numbers=numbers)


def _shapes(graph: Graph, facts: Triples, split: str) -> Iterator[Finding]:
    """Relations that connect almost all of their heads with almost all of their tails, or have a single head or tail."""
    by_head = graph.slot_candidates(Slot.HEAD)
    relations, heads = by_head.keys, by_head.offsets.diff()
    tails = graph.slot_candidates(Slot.TAIL).offsets.diff()
    pairs = relations_by_pair(graph.facts(), graph.n_entities).values.bincount(minlength=graph.n_relations)[relations]
    cartesian = relations[(pairs >= MIN_REDUNDANCY * heads * tails) & (torch.minimum(heads, tails) >= MIN_SUPPORT)]
    count = int(torch.isin(facts.relation, cartesian).sum())
    text = _ratio(len(cartesian), graph.n_relations, "relations connect almost all heads with almost all tails")
    text += f"; they contain {count:,} {split} facts"
    level = _level("Cartesian", count / max(1, len(facts)))
    advice = "report Cartesian relations apart: which entities occur in them is all there is to know"
    numbers = {"relations": len(cartesian), "facts": count}
    examples = [graph.relations.name(relation) for relation in cartesian[:SHOWN_OF_FINDING].tolist()]
    yield Finding("Cartesian relations", text, level, advice, numbers, examples)
    one_sided = relations[(heads == 1) | (tails == 1)]
    text = _ratio(len(one_sided), graph.n_relations, "relations have a single head or a single tail")
    examples = [graph.relations.name(relation) for relation in one_sided[:SHOWN_OF_FINDING].tolist()]
    yield Finding("one-sided relations", text, numbers={"relations": len(one_sided)}, examples=examples)


def _unseen(graph: Graph) -> Iterator[Finding]:
    """Entities and relations of valid and test that are not in train."""
    for kind, slots in (("entities", (Slot.HEAD, Slot.TAIL)), ("relations", (Slot.RELATION,))):
        seen = torch.cat([graph.train[slot] for slot in slots]).unique()
        numbers, texts, largest = {}, [], 0.0
        for split in ("valid", "test"):
            facts = graph.splits[split]
            columns = torch.stack([facts[slot] for slot in slots])  # (slots, n)
            unseen = ~torch.isin(columns, seen)
            n_names, n_facts = len(columns[unseen].unique()), int(unseen.any(0).sum())
            numbers[split] = {kind: n_names, "facts": n_facts}
            texts.append(f"{n_names:,} in {_ratio(n_facts, len(facts), f'{split} facts')}")
            largest = max(largest, n_facts / max(1, len(facts)))
        text = f"{kind} missing from train: {'; '.join(texts)}"
        advice = f"split again, or report without the facts of unseen {kind} too"
        yield Finding(f"unseen {kind}", text, _level("unseen", largest), advice, numbers)


def _self_loops(graph: Graph) -> Finding:
    facts = graph.facts()
    loops = facts[facts.head == facts.tail]
    text = _ratio(len(loops), len(facts), "facts connect an entity with itself")
    examples = [" · ".join(names) for names in graph.names_of(loops[:SHOWN_OF_FINDING])]
    return Finding("self-loops", text, numbers={"facts": len(loops)}, examples=examples)


def _degrees(graph: Graph) -> Iterator[Finding]:
    """How unequally facts are distributed over entities (Gini), and entities without facts."""
    facts = graph.facts()
    degree = torch.cat([facts.head, facts.tail]).bincount(minlength=graph.n_entities)
    isolated = (degree == 0).nonzero()[:, 0].tolist()
    text = _ratio(len(isolated), graph.n_entities, "entities are in no fact")
    examples = [graph.entities.name(entity) for entity in isolated[:SHOWN_OF_FINDING]]
    yield Finding("isolated entities", text, numbers={"entities": len(isolated)}, examples=examples)
    numbers = {"gini": gini(degree), "median": int(degree.median()) if len(degree) else 0}
    largest = degree.argsort(descending=True, stable=True)[:SHOWN_OF_FINDING].tolist()
    examples = [f"{graph.entities.name(entity)} {int(degree[entity]):,}" for entity in largest]
    text = f"Gini {numbers['gini']:.2f}, median {numbers['median']:,} facts; most: {', '.join(examples[:3])}"
    yield Finding("degree skew", text, numbers=numbers, examples=examples)


def _weights(graph: Graph) -> Iterator[Finding]:
    """Weights of facts, if there are any: how many are low, zero, above 1, or differ for the same fact."""
    facts = graph.facts()
    if facts.weight is None:
        return
    weight, zeros = facts.weight, {split: int((f.weights() == 0).sum()) for split, f in graph.splits.items()}
    quartiles = torch.quantile(_thinned(weight), torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)).tolist()
    numbers: dict[str, Any] = {
        "facts": len(facts), "low": int((weight < LOW_WEIGHT).sum()), "above one": int((weight > 1).sum()), "zero": zeros,
        "least": float(weight.min()), "greatest": float(weight.max()), "quartiles": quartiles,
        "different": sum(note.count for note in graph.notes if note.kind == "different weights"),
    }  # fmt: skip
    text = _ratio(numbers["low"], len(facts), f"facts have a weight below {LOW_WEIGHT:g}")
    text += f"; quartiles {', '.join(f'{value:g}' for value in quartiles)}, from {numbers['least']:g} to "
    text += f"{numbers['greatest']:g}; above 1: {numbers['above one']:,}; 0: "
    text += ", ".join(f"{split} {count:,}" for split, count in zeros.items())
    text += f"; given with different weights (the largest counts): {numbers['different']:,}"
    lowest = weight.argsort(stable=True)[:SHOWN_OF_FINDING]
    examples = [
        f"{' · '.join(names)} {weight[i]:g}" for names, i in zip(graph.names_of(facts[lowest]), lowest, strict=True)
    ]
    advice = "facts of weight 0 are not learned and facts above 1 count several times: check whether that is meant"
    if numbers["different"]:
        advice += "; let each fact have one weight, or accept the largest"
    is_odd = any(zeros.values()) or numbers["different"] or 0 < numbers["above one"] < len(facts)
    yield Finding("weights of facts", text, "warning" if is_odd else "ok", advice, numbers, examples)


def _thinned(values: Tensor) -> Tensor:
    """Every k-th value, such that torch.quantile accepts their number."""
    return values[:: 1 + len(values) // MAX_QUANTILE_VALUES]


def gini(counts: Tensor) -> float:
    """Gini coefficient: 0 when all counts are equal, close to 1 when one entity has nearly all."""
    n, total = len(counts), int(counts.sum())
    if not total:
        return 0.0
    position = torch.arange(1, n + 1, dtype=torch.float64)
    return float(2 * (position * counts.sort().values).sum() / (n * total) - (n + 1) / n)


def _names(graph: Graph) -> Iterator[Finding]:
    """Names with stray whitespace, names that `unite_spellings` would unite, and names that differ in punctuation."""
    for vocabulary, spellings in zip((graph.entities, graph.relations), find_spellings(graph), strict=True):
        kind = {"entity": "entities", "relation": "relations"}[vocabulary.kind]
        ids = vocabulary.ids
        stray = [name for name in ids if name != name.strip() or "  " in name or not name.isprintable()]
        open_ = [each for each in spellings if not each.against]
        examples = [f"{ids[each.usual]!r} = {ids[each.other]!r}" for each in open_[:SHOWN_OF_FINDING]]
        pairs = _differ_in_punctuation(vocabulary)
        examples += [f"{ids[first]!r} = {ids[second]!r}" for first, second in pairs[:SHOWN_OF_FINDING]]
        united = sum(note.count for note in graph.notes if note.kind == UNITED and f" of {kind} " in note.text)
        numbers = {"united": united, "alike": len(open_), "apart": len(spellings) - len(open_)}
        numbers |= {"punctuation": len(pairs), "stray": len(stray)}
        text = f"spellings of {kind} (case, whitespace, accents) that were united: {united:,}, that could be: "
        text += (
            f"{len(open_):,}, that were kept apart: {numbers['apart']:,}; that differ in punctuation: {len(pairs):,}; "
        )
        text += f"with stray whitespace: {len(stray):,}"
        level = "warning" if stray or open_ or pairs else "ok"
        advice = f"give {kind} one spelling (load with unite=True): two are learned as two {kind}"
        yield Finding(
            f"names of {kind}", text, level, advice, numbers, [*examples, *map(repr, stray[:SHOWN_OF_FINDING])]
        )


def _differ_in_punctuation(vocabulary: Vocabulary) -> list[tuple[int, int]]:
    """Pairs of names that differ in punctuation within or between words: U.S.A. and USA, Saint-Denis and Saint Denis."""
    if vocabulary.labels is not None or len(vocabulary) > MAX_NAMES_COMPARED:
        return []
    first: dict[str, int] = {}
    pairs = []
    for index, name in enumerate(vocabulary.ids):
        words = GAPS.sub(" ", MARKS.sub("", name)).strip() or name
        other = first.setdefault(spelling_key(words), index)
        if other != index and spelling_key(vocabulary.ids[other]) != spelling_key(name):
            pairs.append((other, index))
    return pairs
