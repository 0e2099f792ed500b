"""Who is like an entity, in general and as it is in one fact."""

from __future__ import annotations

import pytest
import torch

from harmonium.analysis.similar import similar
from harmonium.answers.open_run import OpenRun, open_run
from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError
from small import countries, make_run, random_model


@pytest.fixture(scope="module")
def opened() -> OpenRun:
    graph = countries()
    return open_run(make_run(graph, random_model(graph, "complex", 8, harmony=False)))


@pytest.mark.parametrize("as_tail", [False, True])
def test_in_a_role_the_nearest_tokens_come_first(opened: OpenRun, as_tail: bool) -> None:
    graph = opened.graph
    head, tail = "City 3", "Language 3"
    fact, slot = graph.triple(head, "language", tail), Slot.TAIL if as_tail else Slot.HEAD
    found = similar(
        opened, tail if as_tail else head, "language", **({"head": head} if as_tail else {"tail": tail}), top=99
    )
    others = graph.slot_candidates(slot).lookup(fact.relation)[1]
    facts = set(map(tuple, graph.facts().to_rows().tolist()))
    row = fact.to_rows()[0].tolist()
    known = [(row[0], row[1], e) in facts if as_tail else (e, row[1], row[2]) in facts for e in others.tolist()]
    role = opened.tokens.role(slot, fact, others, torch.tensor(known))
    tokens = role.tokens()
    distance = (tokens - tokens[others == fact[slot]]).norm(dim=1)
    expected = [graph.entities.name(e) for e in others[distance.argsort()].tolist() if e != int(fact[slot])]
    assert [one.name for one in found] == expected
    assert found.role == (head, "language", tail) and found.entity == (tail if as_tail else head)
    assert {one.name: one.known for one in found} == {
        graph.entities.name(e): is_known
        for e, is_known in zip(others.tolist(), known, strict=True)
        if e != int(fact[slot])
    }
    assert all(one.truth == 1 for one in found if one.known)


def test_shared_facts_are_those_of_both_the_rarest_first(opened: OpenRun) -> None:
    found = {one.name: one.shared for one in similar(opened, "City 3", top=999)}
    assert found["City 15"] == ("located in: CountryDland", "language: Language 3")  # 6 and 21 have them
    assert found["City 7"] == ("language: Language 3",)
    assert found["City 4"] == ()
    as_speakers = {one.name: one.shared for one in similar(opened, "City 3", "language", "Language 3", top=999)}
    assert as_speakers["City 15"] == ("located in: CountryDland",)  # the role itself is no reason
    languages = {one.name: one.shared for one in similar(opened, "Language 1", "language", head="City 1", top=9)}
    assert languages["Language 2"] == ()


def test_a_symmetric_relation_is_shared_once(opened: OpenRun) -> None:
    found = {one.name: one.shared for one in similar(opened, "CountryAland", top=999)}
    assert found["CountryCland"].count("borders: CountryBland") == 1
    assert "borders of CountryBland" not in found["CountryCland"]


def test_a_role_is_a_relation_with_one_end(opened: OpenRun) -> None:
    with pytest.raises(HarmoniumError, match="a fact needs a relation"):
        similar(opened, "City 3", tail="Language 3")
    for ends in ({}, {"head": "City 3", "tail": "Language 3"}):
        with pytest.raises(HarmoniumError, match="either a tail"):
            similar(opened, "City 3", "language", **ends)
    with pytest.raises(HarmoniumError, match="no entity named 'nobody'"):
        similar(opened, "nobody")
    with pytest.raises(HarmoniumError, match="must be positive"):
        similar(opened, "City 3", "language", "Language 3", faithfulness=0)
