"""The diagnosis of a graph: findings with a verdict, redundant relations, what rules alone score, and a cleaned copy.

Most checks ask one question: which relations hold between the same two entities, in the same or the other direction.
`mine_rules` answers it by counting; leaks, redundant relations and the rule baseline all use its rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from harmonium.analysis.findings import BOUNDS, LEVELS, Finding, find_all
from harmonium.analysis.since import Since, compare_since
from harmonium.answers.open_or_train import is_run_folder
from harmonium.config.settings import EvaluateConfig
from harmonium.data.datasets import convert, load
from harmonium.data.graph import SPLITS, Graph
from harmonium.data.joint_facts import with_splits_of
from harmonium.data.spellings import read_differences, unite_names
from harmonium.errors import HarmoniumError
from harmonium.evaluation.evaluation import Evaluation, evaluate_scorer
from harmonium.evaluation.rules import KINDS, RuleBaseline, Rules, find_implied, mine_rules
from harmonium.run.run import Run
from harmonium.runtime.displayed import Displayed, one_line
from harmonium.runtime.frames import markdown_table


def doctor(
    graph: Any,
    clean: str | Path | None = None,
    progress: Callable[[int], None] | None = None,
    unite: str | Sequence[str] | None = None,
    since: Any = None,
    top: int = 10,
    **reading: Any,
) -> Diagnosis:
    """Check a graph for leaks and faults, with a verdict; a copy without leaks is written to `clean`, a folder or file.

    A graph is anything that `load` reads, and `reading` are its options. In the copy, names that differ only in blanks,
    case or punctuation are united where `unite` says so: one or several of these words, or "all". With an older version of
    the graph (`since`; or a run on it) the diagnosis also says what is new: problems, names, facts, and facts that
    contradict what used to hold; `top` rows of each.

    >>> harmonium.doctor("atlas").verdict
    >>> harmonium.doctor("messy.csv", clean="clean", unite="case,blanks", on_bad="skip")
    >>> harmonium.doctor("facts-2024.csv", since="facts-2023.csv").since.contradictions
    """
    differences = () if unite is None else read_differences(unite)
    if unite is not None and clean is None:
        raise HarmoniumError("names are united in a cleaned copy: give --clean OUT too")
    graph = load(graph, **reading)
    older = None if since is None else _load_older(since, graph, reading)
    if clean is None:
        return _diagnose_since(older, graph, progress, top)
    from harmonium.data.formats import output_format

    out = Path(clean)
    if out.exists():
        raise HarmoniumError(f"--clean {out}: exists already; choose another name")
    output_format(out)  # an unknown one is an error before the work
    diagnosis = _diagnose_since(older, graph, progress, top)
    graph, united = unite_names(graph, differences) if differences else (graph, {})
    copy, report = clean_copy(graph)
    convert(copy, out)
    return replace(diagnosis, cleaned={"path": str(out), "united": united, **report})


def _load_older(source: Any, graph: Graph, reading: dict[str, Any]) -> tuple[Graph, bool]:
    """The older version, and whether both versions have splits of their own.

    One without splits takes over those of the newer graph: what changes is then due to the facts alone.
    """
    older = source if isinstance(source, Run) or not is_run_folder(source) else Run.load(source)
    older = older.graph if isinstance(older, Run) else load(older, valid=0, test=0, **reading)
    if not len(older.valid) and not len(older.test):
        return with_splits_of(older, graph), False
    return older, not any(note.kind == "split" for note in graph.notes)


def _diagnose_since(
    older: tuple[Graph, bool] | None, graph: Graph, progress: Callable[[int], None] | None, top: int
) -> Diagnosis:
    """The diagnosis of a graph and, with an older version, what is new since then."""
    diagnosis = diagnose(graph, progress)
    if older is None:
        return diagnosis
    earlier, has_splits = older
    findings = diagnose(earlier, progress).findings, diagnosis.findings
    return replace(diagnosis, since=compare_since(earlier, graph, findings, has_splits, top))


@dataclass(frozen=True)
class Diagnosis(Displayed):
    """The findings of all checks of a graph, with a verdict: ok, warning or leaking."""

    graph: str
    triples: dict[str, int]
    findings: Sequence[Finding]
    relations: Sequence[dict[str, Any]]  # kind, relation, other, share, pairs, finds: most test facts found first
    baseline: Evaluation | None  # of the rules alone; None where there is nothing to rank
    notes: Sequence[str] = ()
    cleaned: dict[str, Any] | None = None
    since: Since | None = None  # what is new since an older version

    def __repr__(self) -> str:
        return one_line(self, f"{self.graph}: {self.verdict}", self.reason)

    @property
    def verdict(self) -> str:
        return max((finding.level for finding in self.findings), key=LEVELS.index)

    def _finding(self, name: str) -> Finding:
        return next(finding for finding in self.findings if finding.name == name)

    @property
    def _decisive(self) -> list[Finding]:
        """The findings at the level of the verdict; if that is ok, symmetry where it gives many test facts away."""
        if self.verdict != "ok":
            return [finding for finding in self.findings if finding.level == self.verdict]
        symmetry = self._finding("symmetric leakage")
        return [symmetry] if symmetry.numbers["share"] > BOUNDS["redundant"][0] else []

    @property
    def reason(self) -> str:
        """The reason for the verdict, in one sentence."""
        texts = "; ".join(finding.text for finding in self._decisive)
        if self.verdict != "ok":
            return texts
        if not self.baseline:
            return "there are no valid or test facts to leak"
        share = self._finding("redundant relations").numbers["share"]
        ok = f"no fact is in two splits and {share:.1%} of test facts follow from another relation in train"
        return f"{ok}; still, {texts}" if texts else ok

    @property
    def advice(self) -> str:
        return "; ".join(finding.advice for finding in self._decisive) or "nothing"

    def to_json(self) -> dict[str, Any]:
        baseline = self.baseline and {
            "metrics": self.baseline.metrics,
            "protocol": self.baseline.describe(),
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
            **({"since": self.since.to_json()} if self.since else {}),
        }

    def to_markdown(self, top: int = 20) -> str:
        """A page of Markdown: verdict, findings, redundant relations, what rules alone score."""
        lines = [f"**{self.verdict}**: {self.reason}.", "", f"What to do: {self.advice}.", ""]
        lines += markdown_table(["", "check", "result"], [[f.level, f.name, f.sentence] for f in self.findings])
        if self.relations:
            lines += ["", *markdown_table(*self.relation_table(top))]
        if self.baseline:
            metrics, protocol = self.baseline.metrics, self.baseline.describe()
            row = ["rules alone", *(f"{value:.3f}" for value in metrics.values())]
            lines += ["", *markdown_table(["", *metrics], [row]), "", f"Protocol: {protocol}."]
        if self.since:
            columns = ["", "what", "", "now"]
            lines += ["", f"Since {self.since.older}: {self.since.sentence}.", ""]
            lines += markdown_table(columns, [[cell or "" for cell in row.values()] for row in self.since.records()])
        return "\n".join(lines) + "\n"

    def relation_table(self, top: int) -> tuple[list[str], list[list[Any]]]:
        """Columns and rows of the redundant relations."""
        rows = []
        for row in self.relations[:top]:
            other = "itself" if row["kind"] == "symmetric" else row["other"]
            rows.append([row["kind"], row["relation"], other, f"{row['share']:.0%}", row["pairs"], row["finds"]])
        return ["kind", "relation", "and", "shared", "pairs", "finds"], rows


def diagnose(graph: Graph, progress: Callable[[int], None] | None = None) -> Diagnosis:
    """Run all checks; `progress` counts the queries ranked by rules alone."""
    rules = mine_rules(graph.facts(), graph.n_entities, graph.n_relations)
    split: Literal["test", "valid"] = "test" if len(graph.test) or not len(graph.valid) else "valid"
    facts = graph.splits[split]
    implied, finds = find_implied(facts, graph.train, rules, graph.n_entities)
    baseline = None
    if len(facts):
        baseline = evaluate_scorer(RuleBaseline(graph), graph, EvaluateConfig(split=split), progress=progress)
    return Diagnosis(
        graph.name,
        {name: len(triples) for name, triples in graph.splits.items()},
        find_all(graph, split, implied),
        _redundant_relations(graph, rules, finds),
        baseline,
        tuple(map(str, graph.notes)),
    )


def _redundant_relations(graph: Graph, rules: Rules, finds: Tensor) -> list[dict[str, Any]]:
    """The rules by name, both directions of a mutual one in one row; symmetric relations too."""
    rows: dict[tuple[int, int, int], dict[str, Any]] = {}
    names = graph.relations.titles()
    columns = (rules.kind, rules.body, rules.head, rules.confidence, rules.support, finds)
    for kind, body, head, share, pairs, hits in zip(*(column.tolist() for column in columns), strict=True):
        first, second = (min(body, head), max(body, head)) if KINDS[kind] in ("inverse", "duplicate") else (body, head)
        row = {
            "kind": KINDS[kind],
            "relation": names[first],
            "other": names[second],
            "share": share,
            "pairs": round(pairs),
        }
        row = rows.setdefault((kind, first, second), row | {"finds": 0})
        row["share"] = min(share, row["share"])
        row["finds"] += hits
    return sorted(rows.values(), key=lambda row: (-row["finds"], -row["pairs"], row["relation"], row["other"]))


# Cleaning -------------------------------------------------------------------------------------------------------------


def clean_copy(graph: Graph) -> tuple[Graph, dict[str, Any]]:
    """A copy without leaks, as FB15K-237 was made from FB15K, and a report of what was dropped; names stay as they are.

    Repeated facts stay in the first split that has them; of redundant relations the one with most facts stays; valid and
    test lose the facts that a confident rule still derives from train.
    """
    facts, n = graph.facts(), graph.n_entities
    sizes = torch.tensor([len(graph.splits[split]) for split in SPLITS])
    split = torch.repeat_interleave(torch.arange(3), sizes)  # (n,): index into SPLITS
    pair = (facts.head * n + facts.tail).unique(return_inverse=True)[1]
    rules = mine_rules(facts, n, graph.n_relations)
    replaced_by = _replaced_relations(rules)
    is_first = _first_occurrence(pair * graph.n_relations + facts.relation)
    is_kept_relation = ~torch.isin(facts.relation, torch.tensor(list(replaced_by), dtype=torch.int64))
    train = facts[is_first & is_kept_relation & (split == 0)]
    is_implied = find_implied(facts, train, rules, n)[0].any(0)
    is_not_implied = ~is_implied | (split == 0)
    steps = {"repeated": is_first, "redundant relation": is_kept_relation, "found by a rule": is_not_implied}
    dropped, keep = {}, torch.ones(len(facts), dtype=torch.bool)
    for reason, allowed in steps.items():
        counts = split[keep & ~allowed].bincount(minlength=3).tolist()
        dropped[reason], keep = dict(zip(SPLITS, counts, strict=True)), keep & allowed
    names = graph.relations.titles()
    train, valid, test = (facts[keep & (split == number)] for number in range(3))
    report = {
        "dropped": dropped,
        "relations": [{"dropped": names[r], "kept": names[other]} for r, other in replaced_by.items()],
        "triples": {"train": len(train), "valid": len(valid), "test": len(test)},
    }
    return replace(graph, train=train, valid=valid, test=test, name=f"{graph.name}-clean"), report


def _first_occurrence(codes: Tensor) -> Tensor:
    """(n,) bool: whether each number occurs for the first time."""
    order = codes.argsort(stable=True)
    is_first = torch.ones_like(codes, dtype=torch.bool)
    is_first[order[1:]] = codes[order[1:]] != codes[order[:-1]]
    return is_first


def _replaced_relations(rules: Rules) -> dict[int, int]:
    """relation -> the larger relation, which is kept, that it is the inverse or duplicate of."""
    mutual = rules[rules.kind < KINDS.index("implied")]
    equivalent: dict[int, list[int]] = {}
    for body, head in zip(mutual.body.tolist(), mutual.head.tolist(), strict=True):
        equivalent.setdefault(body, []).append(head)
    kept: set[int] = set()
    replaced_by = {}
    for relation in rules.facts.argsort(descending=True, stable=True).tolist():
        larger = next((other for other in equivalent.get(relation, ()) if other in kept), None)
        if larger is None:
            kept.add(relation)
        else:
            replaced_by[relation] = larger
    return replaced_by
