"""The diagnosis of a graph: findings with a verdict, and redundant relations.

Most checks ask which relations hold between the same two entities, in the same or the other direction. `mine_rules`
answers that by counting; leaks and redundant relations both use its rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from torch import Tensor

from harmonium.data.checks.completeness import completeness_table
from harmonium.data.checks.contradictions import Contradictions
from harmonium.data.checks.findings import BOUNDS, LEVELS, Finding, find_all
from harmonium.data.graph import Graph
from harmonium.data.relation_rules import RULE_KINDS, Rules, find_implied, mine_rules
from harmonium.runtime.displayed import Displayed, Line, Part, Styled, Table, more_rows, notes, one_line
from harmonium.runtime.frames import markdown_table


def diagnose(graph: Graph) -> Diagnosis:
    """Run all checks. Leaks are counted in the test split or, without one, in valid."""
    rules = mine_rules(graph.facts(), graph.n_entities, graph.n_relations)
    split = judged_split(graph)
    implied, finds = find_implied(graph.splits[split], graph.train, rules, graph.n_entities)
    return Diagnosis(
        graph.name,
        {name: len(triples) for name, triples in graph.splits.items()},
        find_all(graph, split, implied),
        _redundant_relations(graph, rules, finds),
        tuple(map(str, graph.notes)),
    )


def judged_split(graph: Graph) -> Literal["test", "valid"]:
    """The split in which leaks are counted: test, or valid where test is empty."""
    return "test" if len(graph.test) or not len(graph.valid) else "valid"


@dataclass(frozen=True)
class Diagnosis(Displayed):
    """The findings of all checks of a graph, with a verdict: ok, warning or leaking."""

    graph: str
    triples: dict[str, int]
    findings: Sequence[Finding]
    relations: Sequence[dict[str, Any]]  # kind, relation, other, share, pairs, finds; descending by `finds`
    notes: Sequence[str] = ()
    rule_baseline: dict[str, Any] | None = None  # metrics and protocol of rules alone; None: nothing to rank
    cleaned: dict[str, Any] | None = None  # what `clean_copy` left out, and where the copy is
    since: Contradictions | None = None  # facts that contradict an older version
    completeness: Sequence[dict[str, Any]] = ()  # of each relation of a run's graph, most facts first

    def __repr__(self) -> str:
        return one_line(self, f"{self.graph}: {self.verdict}", self.reason)

    @property
    def verdict(self) -> str:
        return max((finding.level for finding in self.findings), key=LEVELS.index)

    def _finding(self, name: str) -> Finding:
        return next(finding for finding in self.findings if finding.name == name)

    @property
    def _decisive(self) -> list[Finding]:
        """The findings that decide the verdict; if that is ok, symmetric leakage where it reveals many test facts."""
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
        if not self.triples["valid"] and not self.triples["test"]:
            return "there are no valid or test facts to leak"
        share = self._finding("redundant relations").numbers["share"]
        ok = f"no fact is in two splits and {share:.1%} of test facts follow from another relation in train"
        return f"{ok}; still, {texts}" if texts else ok

    @property
    def advice(self) -> str:
        return "; ".join(finding.advice for finding in self._decisive) or "nothing"

    def display(self, top: int = 10) -> Iterator[Part]:
        """The verdict, the findings, and what rules alone score."""
        colours = {"ok": "green", "warning": "yellow", "leaking": "red"}
        yield Line(f"{self.graph}: {self.verdict}", f"bold {colours[self.verdict]}")
        yield Line(f"  why: {self.reason}\n  what to do: {self.advice}\n")
        findings = [[Styled(f.level, colours[f.level]), f.name, f.sentence] for f in self.findings]
        yield Table("Findings", ["", "check", "result"], findings)
        if self.relations and top:
            caption = "shared: of the first's pairs, or of either's where mutual; finds: test facts that follow"
            if more := more_rows(len(self.relations) - top, " with --top"):
                caption += f"; {more}"
            yield Table("Relations over the same entities", *self.relation_table(top), caption)
        if rules := self.rule_baseline:
            metrics = rules["metrics"]
            caption = f"protocol: {rules['protocol']}"
            yield Table("Rules of one step alone", ["", *metrics], [["rules", *metrics.values()]], caption)
        if cleaned := self.cleaned:
            rows = [[reason, *counts.values()] for reason, counts in cleaned["dropped"].items()]
            rows.append(["left", *cleaned["triples"].values()])
            caption = f"{len(cleaned['relations']):,} redundant relations dropped (--format json lists them)"
            yield Table(f"Cleaned copy in {cleaned['path']}", ["dropped", "train", "valid", "test"], rows, caption)
        yield from completeness_table(self.completeness)
        yield from notes(self.notes)
        yield Line(
            "names, leaks and splits are checked here; `harmonium audit` finds single facts that are probably wrong",
            "dim",
        )
        if since := self.since:
            yield Line(since.sentence, "bold")
            columns = list(since.COLUMNS)
            rows = [[row[name] for name in columns] for row in since.rows]
            if rows:
                yield Table("Contradictions", columns, rows, more_rows(since.count - len(rows), " with --top"))

    def records(self) -> list[dict[str, Any]]:
        """The findings or, when compared with an older version, the contradictions."""
        if self.since:
            return list(self.since.rows)
        names = ("level", "name", "text", "advice", "examples")
        return [{name: getattr(finding, name) for name in names} for finding in self.findings]

    def to_json(self) -> dict[str, Any]:
        return {
            "graph": self.graph,
            "triples": self.triples,
            "verdict": self.verdict,
            "reason": self.reason,
            "advice": self.advice,
            "findings": [asdict(finding) for finding in self.findings],
            "relations": list(self.relations),
            "rule_baseline": self.rule_baseline,
            "notes": list(self.notes),
            "cleaned": self.cleaned,
            **({"completeness": list(self.completeness)} if self.completeness else {}),
            **({"since": self.since.to_json()} if self.since else {}),
        }

    def to_markdown(self, top: int = 20) -> str:
        """A page of Markdown: verdict, findings, redundant relations, what rules alone score."""
        lines = [f"**{self.verdict}**: {self.reason}.", "", f"What to do: {self.advice}.", ""]
        lines += markdown_table(["", "check", "result"], [[f.level, f.name, f.sentence] for f in self.findings])
        if self.relations:
            lines += ["", *markdown_table(*self.relation_table(top))]
        if self.rule_baseline:
            metrics, protocol = self.rule_baseline["metrics"], self.rule_baseline["protocol"]
            row = ["rules alone", *(f"{value:.3f}" for value in metrics.values())]
            lines += ["", *markdown_table(["", *metrics], [row]), "", f"Protocol: {protocol}."]
        if self.since:
            lines += ["", f"{self.since.sentence}.", ""]
            lines += markdown_table([*self.since.COLUMNS], [[*row.values()] for row in self.since.rows])
        return "\n".join(lines) + "\n"

    def relation_table(self, top: int) -> tuple[list[str], list[list[Any]]]:
        """Columns and rows of the redundant relations."""
        rows = []
        for row in self.relations[:top]:
            other = "itself" if row["kind"] == "symmetric" else row["other"]
            rows.append([row["kind"], row["relation"], other, f"{row['share']:.0%}", row["pairs"], row["finds"]])
        return ["kind", "relation", "and", "shared", "pairs", "finds"], rows


def _redundant_relations(graph: Graph, rules: Rules, finds: Tensor) -> list[dict[str, Any]]:
    """Rules between relations as rows of names; a rule that holds both ways is one row. Symmetric relations are included."""
    rows: dict[tuple[int, int, int], dict[str, Any]] = {}
    names = graph.relations.unique_names()
    columns = (rules.kind, rules.body, rules.head, rules.confidence, rules.support, finds)
    for kind, body, head, share, pairs, hits in zip(*(column.tolist() for column in columns), strict=True):
        first, second = (
            (min(body, head), max(body, head)) if RULE_KINDS[kind] in ("inverse", "duplicate") else (body, head)
        )
        row = {
            "kind": RULE_KINDS[kind],
            "relation": names[first],
            "other": names[second],
            "share": share,
            "pairs": round(pairs),
        }
        row = rows.setdefault((kind, first, second), row | {"finds": 0})
        row["share"] = min(share, row["share"])
        row["finds"] += hits
    return sorted(rows.values(), key=lambda row: (-row["finds"], -row["pairs"], row["relation"], row["other"]))
