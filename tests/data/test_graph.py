from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from harmonium.data import graph as graph_module
from harmonium.data.graph import SPLITS, Graph
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from small import make_graph


@pytest.mark.parametrize("slot", list(Slot))
@pytest.mark.parametrize("splits", [SPLITS, ("train",), ("valid", "test")])
def test_known_answers_are_those_of_the_open_slot(slot: Slot, splits: tuple[str, ...]) -> None:
    graph, column = make_graph(), list(Slot).index(slot)
    known = {tuple(row) for split in splits for row in graph.splits[split].to_rows().tolist()}
    n_candidates = graph.n_relations if slot is Slot.RELATION else graph.n_entities
    answers, queries = graph.known_answers(slot, splits), graph.facts()
    expected = []
    for number, row in enumerate(queries.to_rows().tolist()):
        filled = [(*row[:column], candidate, *row[column + 1 :]) for candidate in range(n_candidates)]
        expected += [(number, candidate) for candidate in range(n_candidates) if filled[candidate] in known]
    open_queries = replace(queries, **{slot.value: torch.zeros_like(queries[slot])})  # the open slot is ignored
    assert sorted(zip(*(ids.tolist() for ids in answers.of(open_queries)), strict=True)) == expected
    assert answers.contain(queries).tolist() == [tuple(row) in known for row in queries.to_rows().tolist()]


@pytest.mark.parametrize("slot", list(Slot))
@pytest.mark.parametrize("splits", [SPLITS, ("train",)])
@pytest.mark.parametrize("rows", [slice(0, 0), slice(3, 9)])
def test_known_answers_of_queries_are_all_of_theirs_and_no_others(
    slot: Slot, splits: tuple[str, ...], rows: slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_module, "FACTS_PER_CHUNK", 7)
    graph = make_graph()
    queries = graph.test[rows]
    few, everything = graph.known_answers(slot, splits, queries), graph.known_answers(slot, splits)
    for column, expected in zip(few.of(queries), everything.of(queries), strict=True):
        assert torch.equal(column, expected)
    assert torch.equal(few.contain(queries), everything.contain(queries))
    assert set(few.index.keys.tolist()) <= set(few.keys(queries).tolist())


def test_slot_candidates_are_the_entities_seen_there() -> None:
    graph = make_graph()
    for split in ("train", "test"):
        rows = graph.splits[split].to_rows().tolist()
        for slot, column in ((Slot.HEAD, 0), (Slot.TAIL, 2)):
            candidates = graph.slot_candidates(slot, (split,)).lookup(torch.tensor([1]))[1].tolist()
            assert candidates == sorted({row[column] for row in rows if row[1] == 1})


def hand_graph() -> Graph:
    """married 1-1, mother almost 1-N, born in N-1, likes N-N; valid and test with a new entity each."""
    train = [
        [0, 0, 1], [2, 0, 3],
        [0, 1, 2], [0, 1, 3], [1, 1, 4],  # children per mother: 2 and 1, mean 1.5, which is not above 1.5
        [0, 2, 5], [1, 2, 5], [2, 2, 5], [3, 2, 6],  # people per birthplace: 3 and 1, mean 2
        [0, 3, 1], [0, 3, 2], [1, 3, 2], [1, 3, 1],
    ]  # fmt: skip
    relations = Vocabulary(["married", "mother", "born in", "likes", "never trained"], kind="relation")
    valid, test = [[0, 1, 4], [7, 2, 5]], [[3, 3, 8], [1, 0, 0]]
    splits = (Triples.from_rows(rows) for rows in (train, valid, test))
    return Graph(Vocabulary([f"e{i}" for i in range(9)]), relations, *splits, name="hand")


def test_unseen_triples_have_an_entity_that_is_not_in_train() -> None:
    graph = hand_graph()
    assert graph.unseen(graph.valid).tolist() == [False, True]
    assert graph.unseen(graph.test).tolist() == [True, False]
    assert not graph.unseen(graph.train).any()


def test_a_split_that_is_empty_or_unknown_is_an_error_that_lists_the_others() -> None:
    graph, nothing = hand_graph(), Triples.from_rows([])
    assert graph.split("test") is graph.test
    with pytest.raises(HarmoniumError, match="no split 'dev'; there are train, valid, test"):
        graph.split("dev")
    trained = replace(graph, valid=nothing, test=nothing)
    with pytest.raises(HarmoniumError, match=r"the test split of 'hand' has no triples; it has train \(13\)"):
        trained.split("test")
    with pytest.raises(HarmoniumError, match="none at all"):
        replace(trained, train=nothing).split("train")
