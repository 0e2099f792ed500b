"""Known facts that may be wrong, in a review: accepted ones are kept for good, rejected ones leave the graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from harmonium.answers.audit.audit import find_suspects
from harmonium.answers.audit.suspect import in_words
from harmonium.answers.open_run import open_run
from harmonium.review.apply import facts_to_change
from harmonium.review.session import Review
from harmonium.run.run import Run
from small import family, fitted_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fitted_run(family(), tmp_path_factory.mktemp("suspects") / "run")


def test_suspects_are_judged_in_order_kept_or_removed(run, tmp_path: Path) -> None:
    file = tmp_path / "judgements.sqlite"
    listed = in_words(open_run(run), find_suspects(open_run(run)), 3).suspects
    review = Review.open(run, file, top=3, suspects=True)
    with review.store as store:
        reviewer, offered = store.add_reviewer("Ana"), []
        for verdict in ("accepted", "rejected", "unsure"):
            offer = review.next(reviewer)
            assert offer.shown is not None and offer.triple is not None and offer.shown.probability is None
            assert listed[len(offered)].reason in review.reason(offer.triple)
            offered.append(offer.shown.fact)
            review.judge(reviewer, offer.shown.fact, verdict)
        assert offered == [(each.head, each.relation, each.tail) for each in listed]
        assert review.pending().remove == [offered[1]] and not review.pending().add
        again = Review.start(run, store, top=3, suspects=True)
        assert not {shown.fact for shown in again.queue.shown} & set(offered[:2])
    add, remove = facts_to_change(file, run.graph, "error")
    head, relation, tail = offered[1]
    assert remove.names_of(remove.train) == [(head, relation, tail)] and len(add.train) == 1
    left = {(each.head, each.relation, each.tail) for each in run.audit(judgements=file, top=5).suspects}
    assert offered[0] not in left
