from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from harmonium.answers.calibration import held_out
from harmonium.answers.calibration.held_out import (
    are_known,
    count_other_answers,
    distinct_queries,
    held_out_answers,
    sample_strata,
)
from harmonium.answers.calibration.temperature import fit_temperature
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.candidates import margins
from small import PlainScorer, make_graph, random_table


@pytest.mark.parametrize("slot", list(Slot))
def test_queries_are_those_that_facts_answer(graph: Graph, slot: Slot) -> None:
    queries = distinct_queries(graph, slot, ("train", "valid"))
    columns = [s for s in Slot if s is not slot]
    expected = {tuple(int(graph.facts(("train", "valid"))[c][i]) for c in columns) for i in range(48)}
    assert len(queries) == len(expected)
    assert {tuple(row) for row in torch.stack([queries[c] for c in columns], 1).tolist()} == expected


def test_known_candidates_are_known_facts(graph: Graph) -> None:
    candidates, queries = torch.arange(12).expand(3, 12), graph.train[:3]
    facts = {tuple(row) for row in graph.facts().to_rows().tolist()}
    expected = [[(int(q.head), int(q.relation), t) in facts for t in range(12)] for q in queries.chunks(1)]
    assert are_known(graph.known_answers(Slot.TAIL), Slot.TAIL, queries, candidates).tolist() == expected


def test_other_answers_do_not_count_the_fact_itself(graph: Graph) -> None:
    facts = [tuple(row) for row in graph.facts().to_rows().tolist()]
    triples = Triples.cat([graph.train[:4], Triples.from_rows([[0, 0, 0]])])
    expected = [
        sum((h, r) == (head, relation) and t != tail for h, r, t in facts)
        for head, relation, tail in triples.to_rows().tolist()
    ]
    assert count_other_answers(graph.known_answers(Slot.TAIL), triples).tolist() == expected


@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("slot", [Slot.HEAD, Slot.TAIL])
def test_answers_are_those_of_the_definition(slot: Slot, split: str) -> None:
    """All questions of this split and earlier ones; known facts are no candidates, and later facts are left out."""
    graph = make_graph(12, 3, (60, 20, 20))
    scorer = random_table(graph, 1000, 0)
    answers = held_out_answers(scorer, graph, slot, split, temperature=0.01)
    earlier = ("train",) if split == "valid" else ("train", "valid")
    known = {tuple(row) for row in graph.facts(earlier).to_rows().tolist()}
    true = {tuple(row) for row in graph.splits[split].to_rows().tolist()}
    later = {tuple(row) for row in graph.facts().to_rows().tolist()} - known - true
    expected = []
    queries = distinct_queries(graph, slot, (*earlier, split))
    for query in queries.chunks(1):
        scores = 0.01 * scorer.score_slot(slot, query)[0].double()
        triples = [tuple(c if s is slot else int(query[s]) for s in Slot) for c in range(12)]
        n_known = sum(triple in known for triple in triples)
        for candidate, triple in enumerate(triples):
            if triple not in known | later:
                p = scores.softmax(0)[candidate]
                expected.append((int(query.relation), n_known, triple in true, torch.log(p / (1 - p)).item()))
    columns = answers.relation, answers.known, answers.true, answers.margin
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    for row, other in zip(sorted(rows), sorted(expected), strict=True):
        assert row[:3] == other[:3]
        assert row[3] == pytest.approx(other[3], abs=1e-3)
    assert answers.n_questions == len(queries)
    assert answers.weight.unique().tolist() == [1.0]
    best = answers.margin[answers.is_best]
    assert all(margin <= best[i] + 1e-9 for i, margin in zip(answers.question.tolist(), answers.margin, strict=True))


def test_of_a_larger_split_a_sample_is_true_and_the_rest_is_left_out() -> None:
    graph = make_graph(12, 3, (60, 20, 30))
    scorer = random_table(graph, 1000, 0)
    whole, part = (held_out_answers(scorer, graph, Slot.TAIL, "test", n_facts=n) for n in (None, 20))
    assert (int(whole.true.sum()), int(part.true.sum())) == (30, 20)
    unanswered = [int((answers.known == 0).sum()) for answers in (whole, part)]
    assert unanswered[1] <= unanswered[0]
    assert int((~part.true & (part.known > 0)).sum()) <= int((~whole.true & (whole.known > 0)).sum())


def test_a_sample_of_questions_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_graph(40, 6, (500, 60, 60))
    scorer = random_table(graph, 1000, 0)
    everything = held_out_answers(scorer, graph, Slot.TAIL, "valid")
    monkeypatch.setattr(held_out, "MIN_QUESTIONS", 100)
    monkeypatch.setattr(held_out, "MAX_SCORES", 100 * 40)
    sample = held_out_answers(scorer, graph, Slot.TAIL, "valid", by_truth=True)
    assert sample.n_questions <= 100 < everything.n_questions
    for rows in (sample.known == 0, sample.known > 0):
        assert rows.any()
    assert sample.weight[sample.is_best].sum() == pytest.approx(everything.n_questions)
    assert (sample.weight * sample.true).sum() == pytest.approx(60, rel=0.35)


def test_strata_share_a_sample_and_leave_what_they_cannot_fill() -> None:
    stratum = torch.tensor([0] * 4 + [1] * 50 + [2] * 1000)
    rows, weight = sample_strata(stratum, 64, torch.Generator().manual_seed(0))
    assert stratum[rows].bincount().tolist() == [4, 30, 30]
    assert len(rows.unique()) == 64
    assert torch.bincount(stratum[rows], weight).tolist() == pytest.approx([4, 50, 1000])
    assert len(sample_strata(stratum[:0], 5, torch.Generator())[0]) == 0


def test_the_margin_is_the_log_odds_of_the_softmax() -> None:
    scores = torch.tensor([[1.0, 3.0, 2.0, -1.0]], dtype=torch.float64)
    p = (0.5 * scores).softmax(1)
    assert torch.allclose(margins(scores, (0.5 * scores).logsumexp(1), 0.5), torch.log(p / (1 - p)))
    alone = torch.tensor([[5.0]])
    assert margins(alone, alone).isfinite().all()


@pytest.mark.parametrize("scale", [0.01, 1.0, 40.0])
def test_the_temperature_undoes_the_scale_of_the_scores(scale: float) -> None:
    """Answers are drawn by the softmax of three times the scores."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(2000, 30, generator=generator)
    tails = (3 * scores).softmax(1).multinomial(1, generator=generator)[:, 0]
    facts = Triples(torch.arange(2000), torch.zeros(2000).long(), tails)

    class Scaled(PlainScorer):
        def all_scores(self, slot: Slot, queries: Triples) -> torch.Tensor:
            return scale * scores[queries.head]

    assert fit_temperature(Scaled(), Slot.TAIL, facts, 30) == pytest.approx(3 / scale, rel=0.1)


def test_the_temperature_is_that_of_the_candidates_that_are_not_known() -> None:
    """A known answer with the highest score would otherwise make every other one unlikely."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(1000, 20, generator=generator)
    scores[:, 0] = 5
    tails = 1 + (2 * scores[:, 1:]).softmax(1).multinomial(1, generator=generator)[:, 0]
    graph = make_graph(1000, 1, (10, 5, 5))
    zero = torch.zeros(1000).long()
    graph = replace(graph, train=Triples(torch.arange(1000), zero, zero))

    class Table(PlainScorer):
        def all_scores(self, slot: Slot, queries: Triples) -> torch.Tensor:
            return scores[queries.head].clone()

    facts = Triples(torch.arange(1000), zero, tails)
    known = graph.known_answers(Slot.TAIL, ("train",))
    assert fit_temperature(Table(), Slot.TAIL, facts, 20, known) == pytest.approx(2, rel=0.1)
    assert fit_temperature(Table(), Slot.TAIL, facts, 20) < 1
