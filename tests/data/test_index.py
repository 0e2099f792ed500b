from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonium.data.index import CsrIndex, hash_ids, is_member

pairs = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=40)
queries = st.lists(st.tuples(st.integers(-1, 8), st.integers(-1, 8)), max_size=15)


@given(pairs=pairs, queries=queries)
def test_an_index_is_a_dictionary_of_sorted_sets(pairs: list[tuple[int, int]], queries: list[tuple[int, int]]) -> None:
    expected: dict[int, set[int]] = {}
    for key, value in pairs:
        expected.setdefault(key, set()).add(value)
    keys, values = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T.contiguous()
    index = CsrIndex.build(keys, values)
    assert index.keys.tolist() == sorted(expected)
    assert index.offsets.diff().tolist() == [len(expected[key]) for key in sorted(expected)]

    keys, values = torch.tensor(queries, dtype=torch.int64).reshape(-1, 2).T.contiguous()
    matches = list(zip(*(column.tolist() for column in index.lookup(keys)), strict=True))
    assert matches == [(row, value) for row, (key, _) in enumerate(queries) for value in sorted(expected.get(key, ()))]
    assert index.contains(keys, values).tolist() == [value in expected.get(key, ()) for key, value in queries]


def test_values_of_a_key_are_searched_to_both_ends() -> None:
    """Every size, so that the number of halvings is right on both sides of a power of two."""
    for size in range(1, 18):
        index = CsrIndex.build(torch.zeros(size, dtype=torch.int64), 2 * torch.arange(size))
        values = torch.arange(-1, 2 * size + 1)
        contained = index.contains(torch.zeros_like(values), values).tolist()
        assert contained == [value % 2 == 0 and 0 <= value < 2 * size for value in values.tolist()]


def test_pairs_too_large_for_one_number_are_indexed_too() -> None:
    index = CsrIndex.build(torch.tensor([2**62, 7, 2**62, 7, 0, 7]), torch.tensor([3, 2**40, 1, 5, 2, 5]))
    assert index.keys.tolist() == [0, 7, 2**62]
    assert index.offsets.tolist() == [0, 1, 3, 5]
    assert index.values.tolist() == [2, 5, 2**40, 1, 3]


def test_membership_in_ascending_values() -> None:
    values = torch.tensor([5, 1, 9, -3, 7])
    assert is_member(values, torch.tensor([1, 5, 7])).tolist() == [True, True, False, False, True]
    assert not is_member(values, torch.tensor([], dtype=torch.int64)).any()


def test_hashes_are_distinct_spread_and_not_negative() -> None:
    hashes = hash_ids(torch.arange(-5000, 5000))
    assert len(hashes.unique()) == 10_000
    assert int(hashes.min()) >= 0
    assert (hashes >> 60).bincount().tolist() == pytest.approx([1250] * 8, rel=0.15)
