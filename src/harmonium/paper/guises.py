"""The guises shown: one entity in several facts, as in the paper's tables of neighbours."""

from __future__ import annotations

import torch

from harmonium.data.graph import Graph
from harmonium.data.triples import Slot

OFFICE = (
    "/government/politician/government_positions_held./government/government_position_held/office_position_or_title"
)
GUISES = [  # the triples of the paper's tables: heads, relation, tails, by their identifiers in FB15K
    # George W. Bush, Barack Obama, John McCain, Al Gore as President of the United States
    (["/m/09b6zr", "/m/02mjmr", "/m/0bymv", "/m/0d05fv"], OFFICE, ["/m/060d2"]),
    # Bob Dylan as singer-songwriter, screenwriter, disc jockey, writer
    (["/m/01vrncs"], "/people/person/profession", ["/m/016z4k", "/m/0dxtg", "/m/02dsz", "/m/0cbd2"]),
]


def guises(graph: Graph, count: int = 4) -> list[tuple[str, str, str]]:
    """The triples whose neighbourhoods are shown: the paper's or, on another graph, two entities in `count` guises each.

    Those are heads of one relation with many tails that other heads share, so that neighbours can be true.
    """
    paper = [(h, relation, t) for heads, relation, tails in GUISES for h in heads for t in tails]
    if {name for h, _, t in paper for name in (h, t)} <= set(graph.entities.ids) and OFFICE in graph.relations.ids:
        return paper
    facts = graph.facts()
    sharing = torch.bincount(
        graph.known_answers(Slot.HEAD).of(facts)[0], minlength=len(facts)
    )  # (n,) heads of each guise
    tails: dict[tuple[int, int], list[tuple[int, int]]] = {}  # (relation, head) -> (heads that share it, tail)
    for (h, r, t), heads in zip(facts.to_rows().tolist(), sharing.tolist(), strict=True):
        tails.setdefault((r, h), []).append((min(heads, count + 1), t))
    best: dict[
        int, tuple[int, int, list[int]]
    ] = {}  # relation -> how many heads share its best head's tails, head, tails
    for (r, h), candidates in tails.items():
        top = sorted(candidates, key=lambda guise: (-guise[0], guise[1]))[:count]
        entry = (sum(heads - 1 for heads, _ in top), h, [t for _, t in top])
        best[r] = max(best.get(r, entry), entry, key=lambda guise: (guise[0], -guise[1]))
    by_head: dict[int, tuple[int, list[int]]] = {}
    for r, (_, h, chosen) in sorted(best.items(), key=lambda entry: (-entry[1][0], entry[0])):
        by_head.setdefault(h, (r, chosen))
    names, relations = graph.entities.ids, graph.relations.ids
    return [(names[h], relations[r], names[t]) for h, (r, chosen) in list(by_head.items())[:2] for t in chosen]
