"""Suspects in words: why a known fact is probably wrong, and what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harmonium.answers.audit.audit import Progress, Suspects
from harmonium.answers.audit.proposals import Proposal
from harmonium.answers.contradictions import Contradiction, find_contradictions
from harmonium.answers.open_run import OpenRun
from harmonium.answers.prediction import identifiers
from harmonium.answers.reasons import Reason, find_reasons
from harmonium.data.graph import Graph
from harmonium.data.triples import Triples
from harmonium.runtime.displayed import Line, Part, Table, percent
from harmonium.runtime.frames import DISPLAYED_ROWS, Tabular

Status = Literal["contradicted", "unsupported"]
Names = tuple[str, str, str]

MOST_FACTS = 3  # that a contradiction names
CHANGES = {
    "tail": "a far better tail",
    "head": "a far better head",
    "relation": "a far better relation",
    "exchanged": "head and tail exchanged",
    "name": "a name one letter away",
}


@dataclass(frozen=True)
class Suspect:
    """A known fact that may be wrong.

    head, relation and tail are identifiers; `names` and `meant` are to be read. `contradicted`: other facts speak against
    it, or a change of it is far better. `unsupported`: merely nothing speaks for it, as of many rare facts that are right.
    """

    head: str
    relation: str
    tail: str
    probability: float  # that it is wrong
    status: Status
    reason: str
    meant: Names | None  # identifiers of the fact that was probably meant
    change: str | None  # what of it was changed, in words
    names: Names

    @property
    def text(self) -> str:
        """The fact by name."""
        return " · ".join(self.names)

    def to_json(self) -> dict[str, Any]:
        return {
            "head": self.head,
            "relation": self.relation,
            "tail": self.tail,
            "probability": round(self.probability, 4),
            "status": self.status,
            "reason": self.reason,
            "meant": None if self.meant is None else " · ".join(self.meant),
            "text": self.text,
        }


@dataclass(frozen=True)
class Audit(Tabular):
    """The facts of a graph that are probably wrong, and how many are in all.

    >>> audit = harmonium.audit("facts.csv")
    >>> [suspect.text for suspect in audit.suspects if suspect.probability > 0.9]
    """

    graph: str
    n_facts: int
    wrong: float  # facts that are wrong, estimated
    interval: tuple[float, float]  # 95 % of that
    n_likely: int  # facts that are more likely wrong than right
    suspects: tuple[Suspect, ...]  # the most likely to be wrong first

    def __len__(self) -> int:
        return len(self.suspects)

    def records(self) -> list[dict[str, Any]]:
        return [suspect.to_json() for suspect in self.suspects]

    def summary(self) -> str:
        low, high = (f"{value:,.0f}" for value in self.interval)
        return (
            f"{self.graph}: about {self.wrong:,.0f} of {self.n_facts:,} facts are wrong (95 %: {low} to {high}); "
            f"{self.n_likely:,} are more likely wrong than right"
        )

    def display(self) -> Iterator[Part]:
        yield Line(self.summary(), "bold")
        rows = [
            [suspect.text, percent(suspect.probability), suspect.status, suspect.reason]
            for suspect in self.suspects[:DISPLAYED_ROWS]
        ]
        if rows:
            caption = (
                "contradicted: other facts speak against it; unsupported: nothing speaks for it, rare facts included"
            )
            yield Table(f"Facts of {self.graph} to check", ["fact", "wrong", "why", "reason"], rows, caption)
        if len(self.suspects) > len(rows):
            yield Line(f"{len(self.suspects) - len(rows):,} more; --out FILE or to_pandas() has all", "dim")

    def to_json(self) -> dict[str, Any]:
        return {
            "graph": self.graph,
            "facts": self.n_facts,
            "wrong": round(self.wrong, 1),
            "interval": [round(value, 1) for value in self.interval],
            "likely_wrong": self.n_likely,
            "suspects": self.records(),
        }


def in_words(
    opened: OpenRun, found: Suspects, top: int, confirmed: Iterable[Names] = (), progress: Progress | None = None
) -> Audit:
    """The first `top` suspects in words; facts that people have `confirmed` (identifiers) are left out."""
    left_out = set(confirmed)
    names = [identifiers(opened.graph, row) for row in found.facts]
    kept = [number for number, name in enumerate(names) if name not in left_out]
    likely = sum(found.log_odds[number] > 0 for number in kept)
    chosen = kept[:top]
    triples = found.triples[chosen]
    contradictions = find_contradictions(opened, triples)
    support = find_reasons(opened.evidence, triples, progress)
    meant = [found.meant[number] for number in chosen]
    proposed = [proposal.triple for proposal in meant if proposal is not None]
    reasons = iter(find_reasons(opened.evidence, Triples.from_rows(proposed)) if proposed else ())
    probabilities, suspects = found.probabilities, []
    for row, number in enumerate(chosen):
        proposal = meant[row]
        suspects.append(
            Suspect(
                *names[number],
                probabilities[number],
                "contradicted" if contradictions[row] or proposal else "unsupported",
                _reason(opened.graph, contradictions[row], support[row], proposal, next(reasons) if proposal else None),
                None if proposal is None else identifiers(opened.graph, proposal.triple),
                None if proposal is None else CHANGES[proposal.change],
                opened.graph.names_of(triples[[row]])[0],
            )
        )
    wrong, low, high = (share * found.n_facts for share in (found.share, found.low, found.high))
    return Audit(opened.graph.name, found.n_facts, wrong, (low, high), likely, tuple(suspects))


def _reason(
    graph: Graph,
    contradictions: Sequence[Contradiction],
    support: Reason,
    proposal: Proposal | None,
    for_proposal: Reason | None,
) -> str:
    """What speaks against a fact, then what was meant, then what little speaks for it."""
    parts = []
    for contradiction in contradictions:
        shown = list(contradiction.facts[:MOST_FACTS])
        others = "; ".join(" ".join(names) for names in graph.names_of(Triples.from_rows(shown)))
        if more := len(contradiction.facts) - len(shown):
            others += f"; {more:,} more"
        parts.append(contradiction.rule + (f", but known: {others}" if others else ""))
    if proposal is not None:
        text = " ".join(graph.names_of(Triples.from_rows([proposal.triple]))[0])
        why = f" ({for_proposal.text})" if for_proposal is not None and for_proposal.kind != "none" else ""
        parts.append(f"{CHANGES[proposal.change]}: {text}{why}")
    if not parts:
        weak = support.kind in ("none", "frequent")
        parts.append("no other fact supports it" if weak else f"little supports it: {support.text}")
    return "; ".join(parts)
