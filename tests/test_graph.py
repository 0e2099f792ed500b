from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonium import graph as graph_module
from harmonium.errors import HarmoniumError
from harmonium.graph import SPLITS, Graph, Groups, Slot, Triples, Vocabulary, member, mix
from small import make_graph

ROWS = [[0, 0, 1], [2, 1, 0], [1, 0, 2], [0, 1, 1]]


def test_triples_are_three_columns() -> None:
    triples = Triples.from_rows(ROWS)
    assert len(triples) == 4
    assert triples[Slot.HEAD].tolist() == [0, 2, 1, 0]
    assert triples[Slot.RELATION].tolist() == [0, 1, 0, 1]
    assert triples[Slot.TAIL].tolist() == [1, 0, 2, 1]
    assert triples.head.dtype == torch.int64
    assert triples.rows().tolist() == ROWS


def test_rows_of_triples_are_chosen_by_slice_list_mask_and_chunk() -> None:
    triples = Triples.from_rows(ROWS)
    assert triples[1:3].rows().tolist() == ROWS[1:3]
    assert triples[[3, 0]].rows().tolist() == [ROWS[3], ROWS[0]]
    assert triples[triples.relation == 1].rows().tolist() == [ROWS[1], ROWS[3]]
    assert [part.rows().tolist() for part in triples.chunks(3)] == [ROWS[:3], ROWS[3:]]
    assert Triples.cat([triples[:1], triples[2:]]).rows().tolist() == [ROWS[0], *ROWS[2:]]


def test_no_triples_is_a_table_too() -> None:
    nothing = Triples.from_rows([])
    assert len(nothing) == 0
    assert nothing.rows().shape == (0, 3)
    assert list(nothing.chunks(5)) == []


pairs = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=40)
asked = st.lists(st.tuples(st.integers(-1, 8), st.integers(-1, 8)), max_size=15)


@given(pairs=pairs, asked=asked)
def test_groups_are_a_dictionary_of_sorted_sets(pairs: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    expected: dict[int, set[int]] = {}
    for key, value in pairs:
        expected.setdefault(key, set()).add(value)
    keys, values = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T.contiguous()
    groups = Groups.build(keys, values)
    assert groups.keys.tolist() == sorted(expected)
    assert groups.offsets.diff().tolist() == [len(expected[key]) for key in sorted(expected)]

    asked_keys, asked_values = torch.tensor(asked, dtype=torch.int64).reshape(-1, 2).T.contiguous()
    found = list(zip(*(column.tolist() for column in groups.lookup(asked_keys)), strict=True))
    assert found == [(row, value) for row, (key, _) in enumerate(asked) for value in sorted(expected.get(key, ()))]
    contained = groups.contains(asked_keys, asked_values).tolist()
    assert contained == [value in expected.get(key, ()) for key, value in asked]


def test_a_large_group_is_searched_to_both_ends() -> None:
    """Every size, so that the number of halvings is right on both sides of a power of two."""
    for size in range(1, 18):
        groups = Groups.build(torch.zeros(size, dtype=torch.int64), 2 * torch.arange(size))
        values = torch.arange(-1, 2 * size + 1)
        inside = groups.contains(torch.zeros_like(values), values).tolist()
        assert inside == [value % 2 == 0 and 0 <= value < 2 * size for value in values.tolist()]


@pytest.mark.parametrize("slot", list(Slot))
@pytest.mark.parametrize("splits", [SPLITS, ("train",), ("valid", "test")])
def test_answers_are_the_known_fillers_of_the_open_slot(slot: Slot, splits: tuple[str, ...]) -> None:
    graph, place = make_graph(), list(Slot).index(slot)
    known = {tuple(row) for split in splits for row in getattr(graph, split).rows().tolist()}
    n_fillers = graph.n_relations if slot is Slot.RELATION else graph.n_entities
    answers = graph.answers(slot, splits)
    queries = graph.facts()
    expected = set()
    for number, row in enumerate(queries.rows().tolist()):
        filled = [(*row[:place], filler, *row[place + 1 :]) for filler in range(n_fillers)]
        expected |= {(number, filler) for filler in range(n_fillers) if filled[filler] in known}
    found = list(zip(*(column.tolist() for column in answers.of(queries)), strict=True))
    assert set(found) == expected
    assert len(found) == len(expected)
    assert answers.contain(queries).tolist() == [tuple(row) in known for row in queries.rows().tolist()]


@pytest.mark.parametrize("slot", list(Slot))
@pytest.mark.parametrize("splits", [SPLITS, ("train",)])
@pytest.mark.parametrize("asked", [slice(0, 0), slice(3, 9)])
def test_answers_to_some_queries_are_all_of_theirs_and_no_others(
    slot: Slot, splits: tuple[str, ...], asked: slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_module, "PART", 7)
    graph = make_graph()
    queries = graph.test[asked]
    some, everything = graph.answers(slot, splits, queries), graph.answers(slot, splits)
    for found, expected in zip(some.of(queries), everything.of(queries), strict=True):
        assert torch.equal(found, expected)
    assert torch.equal(some.contain(queries), everything.contain(queries))
    assert set(some.groups.keys.tolist()) <= set(some.keys(queries).tolist())


def test_numbers_too_large_to_pack_are_grouped_too() -> None:
    keys, values = torch.tensor([2**62, 7, 2**62, 7, 0, 7]), torch.tensor([3, 2**40, 1, 5, 2, 5])
    groups = Groups.build(keys, values)
    assert groups.keys.tolist() == [0, 7, 2**62]
    assert groups.offsets.tolist() == [0, 1, 3, 5]
    assert groups.values.tolist() == [2, 5, 2**40, 1, 3]


def test_mixed_numbers_are_spread_and_none_negative() -> None:
    found = mix(torch.arange(-5000, 5000))
    assert len(found.unique()) == 10_000
    assert int(found.min()) >= 0
    assert (found >> 60).bincount().tolist() == pytest.approx([1250] * 8, rel=0.15)


def test_membership_is_of_values_that_rise() -> None:
    assert member(torch.tensor([5, 1, 9, -3, 7]), torch.tensor([1, 5, 7])).tolist() == [True, True, False, False, True]
    assert member(torch.tensor([5]), torch.tensor([], dtype=torch.int64)).tolist() == [False]


def test_the_open_slot_of_a_query_is_ignored() -> None:
    graph = make_graph()
    query = graph.train[:1]
    other = Triples(query.head, query.relation, (query.tail + 1) % graph.n_entities)
    assert graph.answers(Slot.TAIL).of(query)[1].tolist() == graph.answers(Slot.TAIL).of(other)[1].tolist()


def test_fillers_are_the_entities_seen_in_a_slot_of_a_relation() -> None:
    graph = make_graph()
    for split in ("train", "test"):
        rows = getattr(graph, split).rows().tolist()
        for slot, place in ((Slot.HEAD, 0), (Slot.TAIL, 2)):
            found = graph.fillers(slot, (split,)).lookup(torch.tensor([1]))[1].tolist()
            assert found == sorted({row[place] for row in rows if row[1] == 1})


LABELLED = Vocabulary(
    ["Q39", "Q142", "Q230", "Q1428"], ["Switzerland", "France", "Georgia", "Georgia"], kind="entity"
)  # fmt: skip


def test_a_name_is_an_identifier_or_a_label() -> None:
    assert LABELLED.index("Q142") == LABELLED.index("France") == 1
    assert LABELLED.name(0) == "Switzerland"
    assert Vocabulary(["a", "b"]).name(1) == "b"
    assert len(LABELLED) == 4


def test_an_identifier_wins_over_a_label() -> None:
    crossed = Vocabulary(["a", "b"], ["b", "a"])
    assert (crossed.index("a"), crossed.index("b")) == (0, 1)


def test_a_label_of_several_asks_for_an_identifier() -> None:
    with pytest.raises(HarmoniumError) as caught:
        LABELLED.index("Georgia")
    assert str(caught.value) == "2 of the entity names are 'Georgia'; use an identifier: Q230, Q1428"
    assert LABELLED.index("Q1428") == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("switzerland", "no entity named 'switzerland' among 4; did you mean 'Switzerland'"),
        ("Swizerland", "no entity named 'Swizerland' among 4; did you mean 'Switzerland'"),
        ("Frnace", "no entity named 'Frnace' among 4; did you mean 'France'"),
    ],
)
def test_a_near_miss_gets_a_hint(name: str, message: str) -> None:
    with pytest.raises(HarmoniumError) as caught:
        LABELLED.index(name)
    assert str(caught.value).startswith(message)


def test_nothing_alike_gets_no_hint() -> None:
    with pytest.raises(HarmoniumError) as caught:
        Vocabulary(["next", "before"], kind="relation").index("zzz")
    assert str(caught.value) == "no relation named 'zzz' among 2"


def hand_graph() -> Graph:
    """married 1-1, mother almost 1-N, born in N-1, likes N-N; valid and test with someone new each."""
    rows = {
        "train": [
            [0, 0, 1], [2, 0, 3],
            [0, 1, 2], [0, 1, 3], [1, 1, 4],  # children per mother: 2 and 1, mean 1.5, which is not above 1.5
            [0, 2, 5], [1, 2, 5], [2, 2, 5], [3, 2, 6],  # people per place: 3 and 1, mean 2
            [0, 3, 1], [0, 3, 2], [1, 3, 2], [1, 3, 1],
        ],
        "valid": [[0, 1, 4], [7, 2, 5]],
        "test": [[3, 3, 8], [1, 0, 0]],
    }  # fmt: skip
    relations = Vocabulary(["married", "mother", "born in", "likes", "never trained"], kind="relation")
    splits = {split: Triples.from_rows(found) for split, found in rows.items()}
    return Graph(Vocabulary([f"e{i}" for i in range(9)]), relations, **splits, name="hand")


def test_categories_by_hand() -> None:
    assert hand_graph().categories() == ["1-1", "1-1", "N-1", "N-N", "1-1"]
    graph = hand_graph()
    one_more = Triples.cat([graph.train, Triples.from_rows([[0, 1, 5]])])  # mean children (3 + 1) / 2 = 2
    more = Graph(graph.entities, graph.relations, one_more, graph.valid, graph.test)
    assert more.categories()[1] == "1-N"


def test_unseen_entities_are_those_that_train_never_shows() -> None:
    graph = hand_graph()
    assert graph.unseen(graph.valid).tolist() == [False, True]
    assert graph.unseen(graph.test).tolist() == [True, False]
    assert not graph.unseen(graph.train).any()


def test_a_split_that_is_not_there_says_what_there_is() -> None:
    graph = hand_graph()
    assert graph.split("test") is graph.test
    with pytest.raises(HarmoniumError, match="no split 'dev'; there are train, valid, test"):
        graph.split("dev")
    nothing = Triples.from_rows([])
    trained = Graph(graph.entities, graph.relations, graph.train, nothing, nothing, name="trained")
    with pytest.raises(HarmoniumError) as caught:
        trained.split("test")
    assert str(caught.value) == "the test split of 'trained' has no triples; it has train (13)"
    empty = Graph(graph.entities, graph.relations, nothing, nothing, nothing)
    with pytest.raises(HarmoniumError, match="it has none at all"):
        empty.split("train")


def test_facts_are_the_splits_together() -> None:
    graph = hand_graph()
    assert graph.facts().rows().tolist() == [
        row for split in SPLITS for row in getattr(graph, split).rows().tolist()
    ]  # fmt: skip
    assert graph.facts(("test",)).rows().tolist() == [[3, 3, 8], [1, 0, 0]]


def test_a_graph_shows_its_size_and_spells_its_triples() -> None:
    graph = hand_graph()
    assert repr(graph) == "Graph 'hand': 9 entities, 5 relations; train 13, valid 2, test 2"
    assert graph.spell(graph.test) == [("e3", "likes", "e8"), ("e1", "married", "e0")]
