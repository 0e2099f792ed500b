"""Names in one column of bytes: a list of str in all but its memory."""

from __future__ import annotations

import pickle
from copy import deepcopy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonium.data import name_column
from harmonium.data.name_column import NameColumn

WORDS = ["b", "", "Zürich 🇨🇭", "a", "b", "ab", "ba", "\0", "写于", "b"]


@given(
    words=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=30), block=st.integers(1, 9)
)
def test_names_are_a_list_of_str(words: list[str], block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name_column, "NAMES_PER_BLOCK", block)
        names = NameColumn.of(words)
        assert (len(names), list(names), names[:], names[1::2]) == (len(words), words, words, words[1::2])
        assert [names[i] for i in range(-len(words), len(words))] == words * 2
        for word in {*words, "b", "", "éa"}:
            assert names.find(word) == [i for i, other in enumerate(words) if other == word]
            assert (word in names) == (word in words)
        assert names.distinct == (len(set(words)) == len(words))


def test_names_equal_a_sequence_of_the_same_names() -> None:
    names = NameColumn.of(WORDS)
    assert names == WORDS
    assert list.__eq__(WORDS, names) is NotImplemented  # so that a list may stand on either side
    assert names == NameColumn.of(tuple(WORDS))
    assert names != WORDS[:-1]
    assert names != [*WORDS[:-1], "c"]
    assert NameColumn.of(["a"]) != "a"
    assert NameColumn.of(names) is names
    with pytest.raises(IndexError):
        names[len(WORDS)]
    assert repr(NameColumn.of(["a", "b"])) == "['a', 'b']"
    assert "100 in all" in repr(NameColumn.of(["a"] * 100))


def test_columns_give_the_names_again_with_their_index() -> None:
    columns = NameColumn.of(WORDS).columns()
    assert {name: column.dtype for name, column in columns.items()} == {
        "content": torch.uint8, "offsets": torch.int64, "hashes": torch.int64, "order": torch.int64,
    }  # fmt: skip
    again = NameColumn(**columns)
    assert again == WORDS
    assert "hash_index" in vars(again)  # none has to be made
    assert again.find("b") == [0, 4, 9]
    assert pickle.loads(pickle.dumps(again)) == deepcopy(again) == WORDS  # for other processes and copies of a graph
