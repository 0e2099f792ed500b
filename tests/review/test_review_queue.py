"""The queue of a review: its orders, what never comes back, and several reviewers."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from harmonium.answers.calibration.fact_probability import FactCalibration
from harmonium.data.graph import Graph
from harmonium.errors import HarmoniumError
from harmonium.review.queue import ORDERS, teach_value
from harmonium.review.session import Review
from harmonium.run.run import Run
from small import fitted, graph_of, ladder, make_graph, make_run


@pytest.fixture(scope="module")
def run() -> Run:
    """A run on a random graph with enough validation facts for probabilities."""
    graph = make_graph(n_entities=30, sizes=(150, 40, 10))
    return make_run(graph, fitted(graph, graph.train))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "judged.sqlite"


def open_review(run: Run, path: Path, order: str = "use", top: int = 50) -> Review:
    review = Review.open(run, path, order=order, top=top)
    for name in ("ana", "ben"):
        review.store.add_reviewer(name)
    return review


def take(review: Review, reviewer: str, verdict: str) -> tuple[str, str, str]:
    """Judge the next fact."""
    fact = review.next(reviewer).shown.fact
    review.judge(reviewer, fact, verdict)
    return fact


# Orders --------------------------------------------------------------------------------------------------------------


def test_teaching_facts_are_uncertain_and_of_relations_of_which_little_was_judged(run: Run, path: Path) -> None:
    with (review := open_review(run, path, "teach")).store:
        offers = []
        for _ in range(30):
            offers.append(review.next("ana"))
            review.judge("ana", offers[-1].shown.fact, "rejected")
        assert [offer.shown.order for offer in offers] == ["teach"] * 30
        judged: Counter[int] = Counter()
        for this, later in pairwise(offers):  # each teaches at least as much as the next
            rows = [(offer.shown.probability, judged[offer.triple[1]]) for offer in (this, later)]
            values = teach_value(*(torch.tensor(column) for column in zip(*rows, strict=True)))
            assert values[0] >= values[1] - 1e-9
            judged[this.triple[1]] += 1
        assert len(judged) > 1
        for relation in judged:  # the most uncertain of each relation first
            distances = [abs(offer.shown.probability - 0.5) for offer in offers if offer.triple[1] == relation]
            assert distances == sorted(distances)


# What comes back -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
def test_judged_facts_never_come_back_and_unsure_ones_last(run: Run, path: Path, order: str) -> None:
    verdicts = ["accepted", "rejected", "unsure"] * 4
    with (review := open_review(run, path, order)).store:
        judged = {take(review, "ana", verdict): verdict for verdict in verdicts}
        assert len(judged) == 12
    with (review := open_review(run, path, order, top=20)).store:  # another session, for all that is left
        offered = []
        while (offer := review.next("ben")).left:
            offered.append(take(review, "ben", "rejected"))
        unsure = [fact for fact, verdict in judged.items() if verdict == "unsure"]
        assert len(offered) == 20 and not judged.keys() & set(offered)
        assert [earlier.reviewer for earlier in offer.earlier] == ["ana"]
        assert [take(review, "ben", "rejected") for _ in unsure] == unsure  # of another reviewer, in the order of time
        assert review.next("ben").shown is None


def test_an_undone_judgement_is_offered_again_at_once(run: Run, path: Path) -> None:
    with (review := open_review(run, path, "teach")).store:
        facts = [take(review, "ana", "accepted") for _ in range(3)]
        assert review.undo("ana").fact == facts[2]
        assert review.next("ana", first=facts[2]).shown.fact == facts[2]
        assert review.next("ana", first=facts[0]).shown.fact != facts[0]  # still accepted


def test_the_other_direction_of_a_symmetric_fact_does_not_come_back(path: Path) -> None:
    graph = graph_of(", ".join(f"x{i} near x{(i + 1) % 12}, x{(i + 1) % 12} near x{i}" for i in range(12)))
    run = make_run(graph, fitted(graph, graph.train))
    with (review := open_review(run, path)).store:
        assert bool(review.queue.search.traits.symmetric[0])
        head, relation, tail = take(review, "ana", "rejected")
        assert not {(head, relation, tail), (tail, relation, head)} & {
            review.queue.shown[i].fact for i in review.queue.open_facts(review.store.judgements())
        }
        flipped = [(judgement.tail, relation, judgement.head) for judgement in review.store.judgements()]
        review.undo("ana")
        review.store.judge("ben", review._rate(flipped[0]), "rejected")  # as another run may have listed it
        assert review.next("ana").shown.fact != (head, relation, tail)


def one_capital() -> Graph:
    """Countries have one capital; that of four is missing, and so are the countries of four cities."""
    rest = ", ".join(f"z{i} member EU, c{i} is city" for i in range(4))
    return graph_of(f"{ladder('{i} capital {j}, {i} member EU, {j} is city', 24)}, {rest}")


def test_where_there_is_one_answer_the_next_best_follows_a_rejected_one_and_none_an_accepted_one(path: Path) -> None:
    graph = one_capital()
    run = make_run(graph, fitted(graph, graph.train))
    with (review := open_review(run, path, top=200)).store:
        queue, capital = review.queue, graph.relations.index("capital")

        def heads_and_tails() -> list[tuple[int, int]]:
            rows = queue.facts.triples[queue.open_facts(review.store.judgements())].to_rows().tolist()
            return [(head, tail) for head, relation, tail in rows if relation == capital]

        listed = heads_and_tails()
        assert len({head for head, _ in listed}) == len(listed) > 1
        head, tail = listed[0]
        fact = tuple(graph.entities.ids[i] for i in (head, tail))
        review.judge("ana", (fact[0], "capital", fact[1]), "rejected")
        again = dict(heads_and_tails())
        assert again.get(head) not in (None, tail)
        second = graph.entities.ids[again[head]]
        review.judge("ana", (fact[0], "capital", second), "accepted")
        assert head not in dict(heads_and_tails())
        assert again[head] not in dict(heads_and_tails()).values()  # nor is it another one's capital


def test_only_facts_that_the_graph_lacks_are_judged(run: Run, path: Path) -> None:
    with (review := open_review(run, path)).store:
        known = run.graph.names_of(run.graph.train[:1])[0]
        with pytest.raises(HarmoniumError, match="a known fact of the graph"):
            review.judge("ana", known, "accepted")
        with pytest.raises(HarmoniumError, match="no entity named 'nobody'"):
            review.judge("ana", ("nobody", "r0", "e1"), "accepted")


# Several reviewers ---------------------------------------------------------------------------------------------------


def test_what_was_shown_is_kept_beside_the_uncorrected_probability(run: Run, path: Path) -> None:
    from harmonium.answers.calibration.judgement_correction import JudgementCorrection

    with (review := open_review(run, path)).store:
        calibration = review.calibration
        assert isinstance(calibration, FactCalibration)
        corrected = type(calibration)(**vars(calibration) | {"correction": JudgementCorrection(1.0, 0.5, {}, 10)})
        queue = type(review.queue).build(run.graph, review.queue.search, corrected, "run")
        for shown, p, uncorrected in zip(queue.shown, queue.probabilities, queue.uncorrected, strict=True):
            odds = 1.0 + 0.5 * torch.tensor(uncorrected).double().logit()
            assert (shown.probability, shown.uncorrected) == (p, uncorrected)
            assert p == pytest.approx(odds.sigmoid().item())
