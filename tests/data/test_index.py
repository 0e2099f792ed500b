from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonium.data.index import CsrIndex, is_member

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


def test_membership_in_ascending_values() -> None:
    values = torch.tensor([5, 1, 9, -3, 7])
    assert is_member(values, torch.tensor([1, 5, 7])).tolist() == [True, True, False, False, True]
    assert not is_member(values, torch.tensor([], dtype=torch.int64)).any()
