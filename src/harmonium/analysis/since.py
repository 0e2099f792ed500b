"""What is new in a graph since an older version of it: problems, names, facts, and facts that contradict older ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harmonium.analysis.changed_facts import find_changed_relations, find_contradictions
from harmonium.analysis.findings import LEVELS, Finding
from harmonium.analysis.graph_changes import KINDS, GraphChanges, Listed, change_cells, compare_graphs
from harmonium.data.graph import Graph
from harmonium.data.joint_facts import JointFacts
from harmonium.data.joint_names import JointNames
from harmonium.data.similar_names import find_spellings


@dataclass(frozen=True)
class Since:
    """What is new since an older version."""

    older: str
    problems: Sequence[dict[str, Any]]  # checks that were or are a problem: check, change, before, after, advice
    graph: GraphChanges
    relations: Listed  # whose frequency or functionality changed
    spellings: dict[str, Listed]  # of entities and relations: new names that look like known ones
    contradictions: Listed

    @property
    def sentence(self) -> str:
        """The changes in one sentence."""
        appeared = [row["check"] for row in self.problems if row["change"] in ("new", "worse")]
        gone = [row["check"] for row in self.problems if row["change"] in ("gone", "better")]
        texts = [self.graph.sentence]
        texts += [f"new or worse problems: {', '.join(appeared)}"] if appeared else []
        texts += [f"problems gone or better: {', '.join(gone)}"] if gone else []
        if self.contradictions.count:
            texts.append(f"{self.contradictions.count:,} contradictions of what used to hold")
        if count := sum(listed.count for listed in self.spellings.values()):
            texts.append(f"{count:,} new names look like known ones")
        return "; ".join(texts)

    def records(self) -> list[dict[str, Any]]:
        """Everything in one table: columns kind, name, before and after."""
        rows = [(f"problem {row['change']}", row["check"], row["before"], row["after"]) for row in self.problems]
        for row in self.contradictions.rows:
            rows.append(("contradiction", f"{row['entity']}, {row['relation']}", row["rule"], row["now"]))
        for listed in self.spellings.values():
            rows += [(f"{row['differs']} differs", row["new"], row["known"], row["new"]) for row in listed.rows]
        for row in self.relations.rows:
            rows.append(("relation", row["relation"], f"{row['before']:,} facts", f"{row['after']:,}: {row['change']}"))
        for kind in KINDS:
            for change, listed in getattr(self.graph, kind).items():
                rows += [(f"{kind} {change}", *change_cells(row)) for row in listed.rows]
        return [dict(zip(("kind", "name", "before", "after"), row, strict=True)) for row in rows]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"summary": self.sentence}


def compare_since(
    older: Graph,
    newer: Graph,
    findings: tuple[Sequence[Finding], Sequence[Finding]],
    has_splits: bool,
    top: int,
) -> Since:
    """What is new in the newer graph, given the findings of both."""
    facts = JointFacts.of(older, newer)
    names = {"entities": facts.joint.entities, "relations": facts.joint.relations}
    return Since(
        older.name,
        _problems(*findings),
        compare_graphs(facts, has_splits, top),
        find_changed_relations(facts, top),
        {kind: _spellings(joint, top) for kind, joint in names.items()},
        find_contradictions(facts, top),
    )


def _problems(before: Sequence[Finding], after: Sequence[Finding]) -> list[dict[str, Any]]:
    """The checks that were or are no ok: what changed, the result of both, and what to do; those that changed first."""
    rows = []
    for old, new in zip(before, after, strict=True):
        levels = LEVELS.index(old.level), LEVELS.index(new.level)
        if not any(levels):
            continue
        if levels[0] == levels[1]:
            change = "as before"
        elif not levels[0]:
            change = "new"
        elif not levels[1]:
            change = "gone"
        else:
            change = "worse" if levels[1] > levels[0] else "better"
        result = {"before": old.text, "after": new.sentence, "advice": new.advice if levels[1] else ""}
        rows.append({"check": new.name, "level": new.level, "change": change, **result})
    return sorted(rows, key=lambda row: row["change"] == "as before")


def _spellings(names: JointNames, top: int) -> Listed:
    """New names that look like known ones; labels where there are any."""
    new = [names.second.name(position) for position in names.added.tolist()]
    rows = [
        {"new": name, "known": known, "differs": differs}
        for name, known, differs in find_spellings(new, list(names.first.names) if new else [])
    ]
    return Listed.of(rows, top)
