"""Judgements become an update of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from harmonium.data.triples import Triples
from harmonium.errors import HarmoniumError
from harmonium.review.apply import apply_judgements
from harmonium.review.pending import pending_facts
from harmonium.review.store import ReviewStore, Shown, load_judgements
from harmonium.run.run import Run
from harmonium.training.refit import local_refit
from serving import untrained
from small import CONFIGS, family


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(local_refit, "REFIT_STEPS", 3)
    return untrained(family(40), CONFIGS["reciprocal"])


def names(run: Run, triples: Triples) -> set[tuple[str, str, str]]:
    return set(run.graph.names_of(triples))


def test_judgements_of_a_review_update_the_run(run: Run, tmp_path: Path) -> None:
    known = names(run, run.graph.facts())
    people, kind = list(run.graph.entities.ids), run.graph.relations.ids[0]
    missing = [fact for fact in ((head, kind, tail) for head in people[:9] for tail in people[:9]) if fact not in known]
    accepted, rejected, disputed, doubtful = missing[:4]
    with ReviewStore.open(tmp_path / "judged.sqlite") as store:
        for reviewer in ("Ana", "Ben"):
            store.add_reviewer(reviewer)
        for reviewer, fact, verdict in (
            ("Ana", accepted, "accepted"), ("Ana", rejected, "rejected"), ("Ben", rejected, "rejected"),
            ("Ana", disputed, "accepted"), ("Ben", disputed, "rejected"), ("Ben", doubtful, "unsure"),
        ):  # fmt: skip
            store.judge(reviewer, Shown(fact, " · ".join(fact), 0.5, 0.5, 1, "use", "1f3a"), verdict)
    updated = apply_judgements(run, tmp_path / "judged.sqlite")
    assert names(updated, updated.graph.facts()) == known | {accepted}
    assert names(updated, updated.rejected) == {rejected}
    ReviewStore.open(tmp_path / "empty.sqlite").close()
    with pytest.raises(HarmoniumError, match="no fact was accepted or rejected yet"):
        apply_judgements(run, tmp_path / "empty.sqlite")


def test_the_review_of_another_graph_adds_no_entities(run: Run, tmp_path: Path) -> None:
    known, kind = run.graph.entities.ids, run.graph.relations.ids[0]
    facts = names(run, run.graph.facts())
    missing = next((known[0], kind, tail) for tail in known if (known[0], kind, tail) not in facts)
    for file, accepted in (("mixed", [missing, ("Vienna", "capital of", "Austria")]), ("foreign", [("a", kind, "b")])):
        with ReviewStore.open(tmp_path / file) as store:
            for fact in accepted:
                shown = Shown(fact, " · ".join(fact), 0.5, 0.5, 1, "use", "1f3a")
                store.judge(store.add_reviewer("Ana"), shown, "accepted")
        with pytest.raises(HarmoniumError, match="1 accepted facts have names that .* is it the review of another run"):
            apply_judgements(run, tmp_path / file)
    updated = apply_judgements(run, tmp_path / "mixed", on_bad="skip")
    assert names(updated, updated.graph.facts()) == facts | {missing}
    with pytest.raises(HarmoniumError, match="nothing changes"):
        apply_judgements(run, tmp_path / "foreign", on_bad="skip")


def test_judged_names_are_taken_as_they_are_and_unknown_ones_of_rejected_facts_are_skipped(
    run: Run, tmp_path: Path
) -> None:
    """Names that files would clean, take for a header or for no value; facts about entities that an undone update had."""
    judged = {
        ("head", "relation", "tail"): "accepted", ("N/A", "none", "-"): "accepted", ("person 1", "next", "N/A"): "rejected",
        ("gone", "next", "person 1"): "rejected", ("person 1", "gone", "person 2"): "rejected",
    }  # fmt: skip
    with ReviewStore.open(tmp_path / "judged.sqlite") as store:
        store.add_reviewer("Ana")
        for fact, verdict in judged.items():
            store.judge("Ana", Shown(fact, " · ".join(fact), None, None, None, "by hand", "1f3a"), verdict)
    updated = apply_judgements(run, tmp_path / "judged.sqlite")
    assert names(updated, updated.updates[-1].added) == {("head", "relation", "tail"), ("N/A", "none", "-")}
    assert names(updated, updated.rejected) == {("person 1", "next", "N/A")}
    assert any(
        note.startswith("skipped 2 facts to remove with unknown names") for note in updated.updates[-1].record.notes
    )
    pending = pending_facts(load_judgements(tmp_path / "judged.sqlite"), updated.graph)
    assert len(pending) == 0
    before = pending_facts(load_judgements(tmp_path / "judged.sqlite"), run.graph)
    assert (len(before.add), before.remove, before.record) == (2, [], [])  # names come with the first update
