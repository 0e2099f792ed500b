from __future__ import annotations

import random
from dataclasses import replace

import torch

import harmonium
from harmonium.data.canonical_order import in_canonical_order
from harmonium.data.triples import Triples
from harmonium.data.vocabulary import Vocabulary
from small import family


def test_names_and_facts_are_ordered_and_stay_what_they_are() -> None:
    facts = replace(Triples.from_rows([[0, 1, 2], [2, 0, 1], [1, 1, 0]]), weight=torch.tensor([0.1, 0.2, 0.3]))
    graph = replace(
        family(),
        train=facts,
        entities=Vocabulary(["e10", "b", "e9"], ["ten", "bee", "nine"]),
        relations=Vocabulary(["s", "r"]),
    )
    graph = replace(graph, valid=facts[:0], test=facts[:1], rejected=facts[1:2])
    ordered = in_canonical_order(graph)
    assert (list(ordered.entities.ids), list(ordered.entities.labels or ())) == (
        ["b", "e9", "e10"],
        ["bee", "nine", "ten"],
    )
    for name in ("train", "test", "rejected"):
        before, after = getattr(graph, name), getattr(ordered, name)
        rows = [
            dict(zip(g.names_of(t), t.weights().tolist(), strict=True)) for g, t in ((graph, before), (ordered, after))
        ]
        assert rows[0] == rows[1]
    assert ordered.train.to_rows().tolist() == sorted(ordered.train.to_rows().tolist())


def test_the_order_of_rows_does_not_change_the_model() -> None:
    rows = [
        tuple(f"n{(step * a) % 17}" if i != 1 else f"r{a % 3}" for i in range(3)) for a in range(1, 60) for step in (3,)
    ]
    rows = sorted({(h, r, f"n{(7 * int(h[1:]) + len(r) + int(r[1:])) % 17}") for h, r, _ in rows})
    scores = []
    for seed in range(2):
        random.Random(seed).shuffle(rows)
        run = harmonium.train(rows, "paper", dim=4, epochs=2, negatives=5)
        scores.append([answer.score for answer in harmonium.score(run, sorted(rows)[:9])])
    assert scores[0] == scores[1]
