"""What is wrong with a graph: repeated facts, leaks from train to test, redundant relations, odd names; and a cleaned copy.

Almost all of it is one question: which relations hold between the same two entities, in the same or the other direction.
`mine` answers it by counting, as rules of one step; leaks, redundant relations and a rule baseline are read from them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium import evaluation
from harmonium.config import EvaluateConfig
from harmonium.datasets import load
from harmonium.errors import HarmoniumError
from harmonium.evaluation import Evaluation
from harmonium.graph import SPLITS, Graph, Groups, Slot, Triples, Vocabulary

LEVELS = ("calm", "careful", "leaking")
KINDS = ("inverse", "duplicate", "implied", "symmetric")
SHARE = 0.8  # relations that share so many pairs are redundant, one with so many of its cells filled is Cartesian
SUPPORT = 3  # pairs that two relations share before it may be called more than chance
WEAK = 0.1  # the rule baseline uses rules that are right this often or more
DOUBT = 5  # facts that a rule is taken to have failed on before it was tried
JOINED = 1 << 22  # rows of a join held at once
BOUNDS = {  # the share of test facts above which to be careful, and to speak of a leak
    "overlap": (0.0, 0.01),
    "redundant": (0.02, 0.2),
    "symmetric": (0.5, 1.0),
    "Cartesian": (0.2, 1.0),
    "unseen": (0.1, 1.0),
}


@dataclass(frozen=True)
class Rules:
    """(h, body, t) implies (h, head, t) or, reversed, (t, head, h); sorted by `cell`."""

    body: Tensor  # (n,) int64 relation
    head: Tensor  # (n,) int64 relation
    reversed: Tensor  # (n,) bool
    support: Tensor  # (n,) int64 pairs of entities for which both hold
    facts: Tensor  # (n_relations,) int64 pairs of each relation, self-loops apart

    @property
    def confidence(self) -> Tensor:
        """(n,) the share of the body's facts that the rule is right about."""
        return self.support.double() / self.facts[self.body]

    @property
    def coverage(self) -> Tensor:
        """(n,) the share of the head's facts that the rule finds."""
        return self.support.double() / self.facts[self.head]

    @property
    def kind(self) -> Tensor:
        """(n,) index into KINDS, for confident rules: redundant both ways, one way only, or a relation with itself."""
        mutual = torch.where(self.reversed, KINDS.index("inverse"), KINDS.index("duplicate"))
        kind = torch.where(self.coverage >= SHARE, mutual, KINDS.index("implied"))
        return torch.where(self.body == self.head, KINDS.index("symmetric"), kind)

    @property
    def cell(self) -> Tensor:
        return _cell(self.reversed, self.body, self.head, len(self.facts))

    def __len__(self) -> int:
        return len(self.body)

    def __getitem__(self, index: Tensor) -> Rules:
        return Rules(self.body[index], self.head[index], self.reversed[index], self.support[index], self.facts)


def _cell(reversed: Tensor | bool, body: Tensor, head: Tensor, n_relations: int) -> Tensor:
    return (reversed * n_relations + body) * n_relations + head


def _pairs(facts: Triples, n_entities: int) -> Groups:
    """(head, tail) as one number -> relations that hold between them."""
    return Groups.build(facts.head * n_entities + facts.tail, facts.relation)


def _join(groups: Groups, keys: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """`groups.lookup` in parts of bounded size."""
    size = max(1, JOINED // max(1, int(groups.offsets.diff().max()) if len(groups.keys) else 1))
    for start in range(0, len(keys), size):
        row, value = groups.lookup(keys[start : start + size])
        yield row + start, value


def mine(facts: Triples, n_entities: int, n_relations: int, confidence: float = SHARE, support: int = SUPPORT) -> Rules:
    """All rules of one step that are right often enough; self-loops, which tell no direction, are left out."""
    pairs = _pairs(facts[facts.head != facts.tail], n_entities)
    pair, relation = torch.repeat_interleave(pairs.keys, pairs.offsets.diff()), pairs.values
    cells, counts = [pair.new_empty(0)], [pair.new_empty(0)]
    for reversed in (False, True):
        for row, head in _join(pairs, pair % n_entities * n_entities + pair // n_entities if reversed else pair):
            found = _cell(reversed, relation[row], head, n_relations).unique(return_counts=True)
            cells.append(found[0])
            counts.append(found[1])
    cell, place = torch.cat(cells).unique(return_inverse=True)
    total = torch.zeros_like(cell).index_add_(0, place, torch.cat(counts))
    body, head, reversed = cell // n_relations % n_relations, cell % n_relations, cell >= n_relations**2
    rules = Rules(body, head, reversed, total, relation.bincount(minlength=n_relations))
    return rules[((body != head) | reversed) & (rules.confidence >= confidence) & (total >= support)]


def answered(triples: Triples, train: Triples, rules: Rules, n_entities: int) -> tuple[Tensor, Tensor]:
    """(kinds, n) whether a rule of each kind finds each triple in train, and (rules,) how many each rule finds."""
    pairs, kind, cells = _pairs(train, n_entities), rules.kind, rules.cell
    flags, finds = torch.zeros(len(KINDS), len(triples), dtype=torch.bool), torch.zeros(len(rules), dtype=torch.int64)
    if not len(rules):
        return flags, finds
    for reversed in (False, True):
        first, second = (triples.tail, triples.head) if reversed else (triples.head, triples.tail)
        for row, body in _join(pairs, first * n_entities + second):
            cell = _cell(reversed, body, triples.relation[row], len(rules.facts))
            at = torch.searchsorted(cells, cell).clamp_(max=len(rules) - 1)
            hit = cells[at] == cell
            flags[kind[at[hit]], row[hit]] = True
            finds += at[hit].bincount(minlength=len(rules))
    return flags, finds


class RuleBaseline:
    """A scorer that knows only rules of one step over train: the more and the surer rules, the likelier a filler."""

    def __init__(self, graph: Graph, confidence: float = WEAK) -> None:
        self.n_entities = graph.n_entities
        self.rules = mine(graph.train, graph.n_entities, graph.n_relations, confidence)
        sure = self.rules.support / (self.rules.facts[self.rules.body] + DOUBT)
        self.weight = -torch.log1p(-sure).float()  # sums of it are noisy-or
        self.of_relation = Groups.build(self.rules.head, torch.arange(len(self.rules)))
        self.known = {slot: graph.answers(slot, ("train",)).groups for slot in (Slot.HEAD, Slot.TAIL)}

    def score_slot(self, slot: Slot, queries: Triples) -> Tensor:
        scores = torch.zeros(len(queries) * self.n_entities)
        other = Slot.TAIL if slot is Slot.HEAD else Slot.HEAD
        for row, rule in _join(self.of_relation, queries.relation):
            for reversed, source in ((False, slot), (True, other)):
                inside = self.rules.reversed[rule] == reversed
                query, used = row[inside], rule[inside]
                keys = self.rules.body[used] * self.n_entities + queries[other][query]
                for at, filler in _join(self.known[source], keys):
                    scores.index_add_(0, query[at] * self.n_entities + filler, self.weight[used[at]])
        return scores.view(len(queries), -1)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for: what was found, how much it matters, what to do."""

    name: str
    text: str
    level: str = "calm"
    advice: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)
    examples: Sequence[str] = ()

    @property
    def sentence(self) -> str:
        """The text, with examples where it matters."""
        shown = self.examples[:3] if self.level != "calm" else ()
        return f"{self.text}; such as {', '.join(shown)}" if shown else self.text


@dataclass(frozen=True)
class Diagnosis:
    """What was found in a graph, with a verdict."""

    graph: str
    triples: dict[str, int]
    findings: Sequence[Finding]
    relations: Sequence[dict[str, Any]]  # kind, relation, other, share, pairs, finds: most test facts found first
    baseline: Evaluation | None  # of the rules alone; none where there is nothing to rank
    notes: Sequence[str] = ()
    cleaned: dict[str, Any] | None = None

    @property
    def verdict(self) -> str:
        return max((finding.level for finding in self.findings), key=LEVELS.index)

    @property
    def _telling(self) -> list[Finding]:
        """The findings that the verdict stands on; in a calm graph, symmetry where it gives many test facts away."""
        if self.verdict != "calm":
            return [finding for finding in self.findings if finding.level == self.verdict]
        return [
            f for f in self.findings if f.name == "symmetric leakage" and f.numbers["share"] > BOUNDS["redundant"][0]
        ]

    @property
    def reason(self) -> str:
        """Why, in a sentence."""
        why = "; ".join(finding.text for finding in self._telling)
        if self.verdict != "calm":
            return why
        if not self.baseline:
            return "there are no valid or test facts that could be given away"
        share = next(f.numbers["share"] for f in self.findings if f.name == "redundant relations")
        calm = f"no fact is in two splits and {share:.1%} of test facts follow from another relation in train"
        return f"{calm}; still, {why}" if why else calm

    @property
    def advice(self) -> str:
        """What to do next."""
        return "; ".join(finding.advice for finding in self._telling) or "nothing needs doing"

    def to_json(self) -> dict[str, Any]:
        baseline = self.baseline and {
            "metrics": self.baseline.metrics,
            "protocol": evaluation.describe(self.baseline.protocol),
        }
        return {
            "graph": self.graph,
            "triples": self.triples,
            "verdict": self.verdict,
            "reason": self.reason,
            "advice": self.advice,
            "findings": [asdict(finding) for finding in self.findings],
            "relations": list(self.relations),
            "rule_baseline": baseline,
            "notes": list(self.notes),
            "cleaned": self.cleaned,
        }

    def to_markdown(self, top: int = 20) -> str:
        """The same for a page: verdict, findings, redundant relations, what rules alone score."""
        lines = [f"**{self.verdict}**: {self.reason}.", "", f"What to do: {self.advice}.", ""]
        lines += _markdown(["", "what", "found"], [[f.level, f.name, f.sentence] for f in self.findings])
        if self.relations:
            lines += ["", *_markdown(*self.relation_table(top))]
        if self.baseline:
            metrics, protocol = self.baseline.metrics, evaluation.describe(self.baseline.protocol)
            row = ["rules alone", *(f"{value:.3f}" for value in metrics.values())]
            lines += ["", *_markdown(["", *metrics], [row]), "", f"Protocol: {protocol}."]
        return "\n".join(lines) + "\n"

    def relation_table(self, top: int) -> tuple[list[str], list[list[Any]]]:
        """Columns and rows of the redundant relations."""
        rows = []
        for row in self.relations[:top]:
            other = "itself" if row["kind"] == "symmetric" else row["other"]
            rows.append([row["kind"], row["relation"], other, f"{row['share']:.0%}", row["pairs"], row["finds"]])
        return ["kind", "relation", "and", "shared", "pairs", "finds"], rows


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join(re.sub(r"([|<>&])", r"\\\1", str(cell)) for cell in line) + " |" for line in lines]


def diagnose(graph: Graph, watch: Callable[[int], None] | None = None) -> Diagnosis:
    """Look for everything; `watch` is told of ranked queries."""
    rules = mine(graph.facts(), graph.n_entities, graph.n_relations)
    split = "test" if len(graph.test) or not len(graph.valid) else "valid"
    asked = getattr(graph, split)
    flags, finds = answered(asked, graph.train, rules, graph.n_entities)
    baseline = None
    if len(asked):
        baseline = evaluation.evaluate(RuleBaseline(graph), graph, EvaluateConfig(split=split), watch=watch)
    found = [
        *_repeated(graph),
        *_leaks(flags, split),
        _linked(graph, asked, split),
        *_shapes(graph, asked, split),
        *_unseen(graph),
        _loops(graph),
        *_degrees(graph),
        _names(graph.entities),
        _names(graph.relations),
    ]
    sizes = {part: len(getattr(graph, part)) for part in SPLITS}
    return Diagnosis(graph.name, sizes, found, _redundant(graph, rules, finds), baseline, graph.notes)


def _of(count: int, total: int, what: str) -> str:
    return f"{count:,} of {total:,} {what} ({count / max(1, total):.1%})"


def _level(what: str, share: float) -> str:
    return LEVELS[sum(share > bound for bound in BOUNDS[what])]


def _repeated(graph: Graph) -> Iterator[Finding]:
    """Triples that stand more than once: in a split (those included that reading dropped), or in several."""
    known = {split: graph.answers(Slot.TAIL, (split,)) for split in SPLITS}
    left = {split: len(getattr(graph, split)) - len(known[split].groups.values) for split in SPLITS}
    dropped = dict.fromkeys(SPLITS, 0)
    for split, count in re.findall(r"(train|valid|test): dropped ([\d,]+) repeated", "\n".join(graph.notes)):
        dropped[split] = int(count.replace(",", ""))
    text = f"{sum(left.values()):,} within a split, {sum(dropped.values()):,} more were dropped while reading"
    numbers = {"left": left, "dropped": dropped}
    yield Finding("repeated triples", text, LEVELS[any(left.values())], "drop repeated triples (--clean)", numbers)
    numbers = {
        f"{split} in {earlier}": int(known[earlier].contain(getattr(graph, split)).sum())
        for split, earlier in (("test", "train"), ("valid", "train"), ("test", "valid"))
    }
    share = max(numbers[f"{split} in train"] / max(1, len(getattr(graph, split))) for split in ("valid", "test"))
    text = (
        f"{_of(numbers['test in train'], len(graph.test), 'test facts are in train too')}; "
        f"valid in train {numbers['valid in train']:,}, test in valid {numbers['test in valid']:,}"
    )
    level = max(_level("overlap", share), LEVELS[numbers["test in valid"] > 0], key=LEVELS.index)
    yield Finding(
        "split overlap", text, level, "drop from valid and test what an earlier split holds (--clean)", numbers
    )


def _leaks(flags: Tensor, split: str) -> Iterator[Finding]:
    """Facts that a confident rule of one step finds in train."""
    n, count = flags.shape[1], dict(zip(KINDS, flags.sum(1).tolist(), strict=True))
    symmetric, redundant = count.pop("symmetric"), int(flags[:-1].any(0).sum())
    numbers = {**count, "facts": redundant, "share": redundant / max(1, n), "with symmetric": int(flags.any(0).sum())}
    parts = ", ".join(f"{kind} {found:,}" for kind, found in count.items())
    text = f"{_of(redundant, n, f'{split} facts follow from another relation in train')}: {parts}"
    advice = "hold results against what rules alone score, and report on a cleaned copy (--clean) too"
    yield Finding("redundant relations", text, _level("redundant", numbers["share"]), advice, numbers)
    numbers = {"facts": symmetric, "share": symmetric / max(1, n)}
    text = _of(symmetric, n, f"{split} facts are a train fact of a symmetric relation, reversed")
    advice = "report symmetric relations apart: whoever learns the symmetry has these answers"
    yield Finding("symmetric leakage", text, _level("symmetric", numbers["share"]), advice, numbers)


def _linked(graph: Graph, asked: Triples, split: str) -> Finding:
    """Facts whose two entities some relation links in train already."""
    n, pairs = graph.n_entities, (graph.train.head * graph.n_entities + graph.train.tail).unique()
    same = torch.isin(asked.head * n + asked.tail, pairs)
    back = torch.isin(asked.tail * n + asked.head, pairs)
    numbers = {"same": int(same.sum()), "reversed": int(back.sum()), "either": int((same | back).sum())}
    text = (
        f"{_of(numbers['either'], len(asked), f'{split} facts join two entities that train joins')}: "
        f"the same way {numbers['same']:,}, the other way {numbers['reversed']:,}, by any relation"
    )
    return Finding("linked pairs", text, numbers=numbers)


def _shapes(graph: Graph, asked: Triples, split: str) -> Iterator[Finding]:
    """Relations that join almost all of their heads with almost all of their tails, or have but one of either."""
    heads, tails = graph.fillers(Slot.HEAD), graph.fillers(Slot.TAIL)
    relations, heads, tails = heads.keys, heads.offsets.diff(), tails.offsets.diff()
    facts = _pairs(graph.facts(), graph.n_entities).values.bincount(minlength=graph.n_relations)[relations]
    found = relations[(facts >= SHARE * heads * tails) & (torch.minimum(heads, tails) >= SUPPORT)]
    inside = int(torch.isin(asked.relation, found).sum())
    words = _of(len(found), graph.n_relations, "relations join almost all their heads with almost all their tails")
    yield Finding(
        "Cartesian relations",
        f"{words}; they hold {inside:,} {split} facts",
        _level("Cartesian", inside / max(1, len(asked))),
        "report Cartesian relations apart: who may stand there is all there is to know",
        {"relations": len(found), "facts": inside},
        [graph.relations.name(relation) for relation in found[:5].tolist()],
    )
    found = relations[(heads == 1) | (tails == 1)]
    text = _of(len(found), graph.n_relations, "relations have one head only, or one tail only")
    examples = [graph.relations.name(relation) for relation in found[:5].tolist()]
    yield Finding("one-sided relations", text, numbers={"relations": len(found)}, examples=examples)


def _unseen(graph: Graph) -> Iterator[Finding]:
    """Entities and relations of valid and test that training never shows."""
    for what, slots in (("entities", (Slot.HEAD, Slot.TAIL)), ("relations", (Slot.RELATION,))):
        seen = torch.cat([graph.train[slot] for slot in slots]).unique()
        numbers, words, share = {}, [], 0.0
        for split in ("valid", "test"):
            triples = getattr(graph, split)
            columns = torch.stack([triples[slot] for slot in slots])  # (slots, n)
            new = ~torch.isin(columns, seen)
            numbers[split] = {what: len(columns[new].unique()), "facts": int(new.any(0).sum())}
            words.append(f"{numbers[split][what]:,} in {_of(numbers[split]['facts'], len(triples), f'{split} facts')}")
            share = max(share, numbers[split]["facts"] / max(1, len(triples)))
        advice = f"split again, or report without the facts of unseen {what} too"
        text = f"{what} that train never shows: {'; '.join(words)}"
        yield Finding(f"unseen {what}", text, _level("unseen", share), advice, numbers)


def _loops(graph: Graph) -> Finding:
    facts = graph.facts()
    loops = facts[facts.head == facts.tail]
    text = _of(len(loops), len(facts), "facts join an entity with itself")
    examples = [" · ".join(names) for names in graph.spell(loops[:5])]
    return Finding("self-loops", text, numbers={"facts": len(loops)}, examples=examples)


def _degrees(graph: Graph) -> Iterator[Finding]:
    """How unequally facts are spread over entities, and who has none."""
    facts = graph.facts()
    degree = torch.cat([facts.head, facts.tail]).bincount(minlength=graph.n_entities)
    alone = (degree == 0).nonzero()[:, 0].tolist()
    text = _of(len(alone), graph.n_entities, "entities are in no fact")
    examples = [graph.entities.name(entity) for entity in alone[:5]]
    yield Finding("isolated entities", text, numbers={"entities": len(alone)}, examples=examples)
    numbers = {"gini": gini(degree), "median": int(degree.median()) if len(degree) else 0}
    top = degree.argsort(descending=True, stable=True)[:5].tolist()
    examples = [f"{graph.entities.name(entity)} {int(degree[entity]):,}" for entity in top]
    text = f"Gini {numbers['gini']:.2f}, median {numbers['median']:,} facts; most: {', '.join(examples[:3])}"
    yield Finding("degree skew", text, numbers=numbers, examples=examples)


def gini(counts: Tensor) -> float:
    """0 when all have the same, towards 1 when one has everything."""
    n, total = len(counts), int(counts.sum())
    place = torch.arange(1, n + 1, dtype=torch.float64)
    return float(2 * (place * counts.sort().values).sum() / (n * total) - (n + 1) / n) if total else 0.0


def _names(vocabulary: Vocabulary) -> Finding:
    """Names with stray blanks, and different ones that read alike; several may share a label, not an identifier."""
    texts = dict.fromkeys([*vocabulary.ids, *(vocabulary.labels or ())])
    stray = [text for text in texts if text != text.strip() or "  " in text or not text.isprintable()]
    alike: dict[str, list[str]] = {}
    for text in vocabulary.labels or vocabulary.ids:
        plain = unicodedata.normalize("NFKC", text).casefold().replace("_", " ")
        alike.setdefault(" ".join(plain.split()), []).append(text)
    groups = [group for group in alike.values() if len(group) > 1]
    plural = {"entity": "entities", "relation": "relations"}[vocabulary.kind]
    return Finding(
        f"names of {plural}",
        f"alike but for case, blanks or underscores: {len(groups):,}; with stray blanks: {len(stray):,}",
        LEVELS[bool(stray or (groups and vocabulary.labels is None))],
        f"trim and unite the names of {plural}: what is spelt two ways is learned as two",
        {"alike": len(groups), "stray": len(stray)},
        [*(" = ".join(map(repr, group[:3])) for group in groups[:5]), *map(repr, stray[:5])],
    )


def _redundant(graph: Graph, rules: Rules, finds: Tensor) -> list[dict[str, Any]]:
    """The rules as rows for people, both directions of a mutual one together; symmetric relations too."""
    rows: dict[tuple[int, ...], dict[str, Any]] = {}
    names = graph.relations.titles()
    columns = (rules.kind, rules.body, rules.head, rules.confidence, rules.support, finds)
    for kind, body, head, share, pairs, hits in zip(*(column.tolist() for column in columns), strict=True):
        mutual = KINDS[kind] in ("inverse", "duplicate")
        one, other = sorted((body, head)) if mutual else (body, head)
        row = {"kind": KINDS[kind], "relation": names[one], "other": names[other], "share": share, "pairs": pairs}
        row = rows.setdefault((kind, one, other), row | {"finds": 0})
        row["share"] = min(share, row["share"])
        row["finds"] += hits
    return sorted(rows.values(), key=lambda row: (-row["finds"], -row["pairs"], row["relation"], row["other"]))


def clean_copy(graph: Graph) -> tuple[Graph, dict[str, Any]]:
    """A copy without what leaks, and what was dropped; made as FB15K-237 was from FB15K.

    Repeated facts stay in the first split that has them; of redundant relations the one with most facts stays; valid
    and test lose the facts that a confident rule still finds in train. The vocabularies stay as they are.
    """
    facts, n = graph.facts(), graph.n_entities
    part = torch.repeat_interleave(torch.arange(3), torch.tensor([len(getattr(graph, split)) for split in SPLITS]))
    pair = (facts.head * n + facts.tail).unique(return_inverse=True)[1]
    steps = {"repeated": _first(pair * graph.n_relations + facts.relation)}
    rules = mine(facts, n, graph.n_relations)
    relations = _superfluous(rules)
    steps["redundant relation"] = ~torch.isin(facts.relation, torch.tensor(list(relations), dtype=torch.int64))
    keep = steps["repeated"] & steps["redundant relation"]
    found = answered(facts, facts[keep & (part == 0)], rules, n)[0].any(0)
    steps["found by a rule"] = ~found | (part == 0)
    dropped, keep = {}, torch.ones(len(facts), dtype=torch.bool)
    for reason, stays in steps.items():
        lost = part[keep & ~stays].bincount(minlength=3).tolist()
        dropped[reason], keep = dict(zip(SPLITS, lost, strict=True)), keep & stays
    names = graph.relations.titles()
    left = {split: facts[keep & (part == number)] for number, split in enumerate(SPLITS)}
    told = {
        "dropped": dropped,
        "relations": [{"dropped": names[r], "kept": names[other]} for r, other in relations.items()],
        "triples": {split: len(triples) for split, triples in left.items()},
    }
    return replace(graph, **left, name=f"{graph.name}-clean"), told


def _first(code: Tensor) -> Tensor:
    """(n,) whether each number stands there for the first time."""
    order = code.argsort(stable=True)
    fresh = torch.ones_like(code, dtype=torch.bool)
    fresh[order[1:]] = code[order[1:]] != code[order[:-1]]
    return fresh


def _superfluous(rules: Rules) -> dict[int, int]:
    """relation -> the larger one, kept, that it is the inverse or duplicate of."""
    mutual = rules[rules.kind < KINDS.index("implied")]
    twins: dict[int, list[int]] = {}
    for body, head in zip(mutual.body.tolist(), mutual.head.tolist(), strict=True):
        twins.setdefault(body, []).append(head)
    kept: set[int] = set()
    found = {}
    for relation in rules.facts.argsort(descending=True, stable=True).tolist():
        twin = next((other for other in twins.get(relation, ()) if other in kept), None)
        if twin is None:
            kept.add(relation)
        else:
            found[relation] = twin
    return found


def doctor(
    graph: str | Path | Graph, clean: str | Path | None = None, watch: Callable[[int], None] | None = None
) -> Diagnosis:
    """What is wrong with a graph, with a verdict; a copy without what leaks is written to `clean`, a folder or file.

    >>> harmonium.doctor("atlas").verdict
    """
    graph = graph if isinstance(graph, Graph) else load(graph)
    if clean is None:
        return diagnose(graph, watch)
    from harmonium import formats

    out = Path(clean)
    if out.exists():
        raise HarmoniumError(f"--clean {out}: is there already; choose another name")
    to = formats.writable(out)
    found, (copy, told) = diagnose(graph, watch), clean_copy(graph)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        formats.write(copy, out, to)
    except OSError as error:
        raise HarmoniumError(f"--clean {out}: cannot be written ({error.strerror or error})") from error
    return replace(found, cleaned={"path": str(out), **told})
