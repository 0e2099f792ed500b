"""Texts in one column of bytes: a list of str in all but its memory."""

from __future__ import annotations

import pickle
from copy import deepcopy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonium import texts
from harmonium.texts import Texts

WORDS = ["b", "", "Zürich 🇨🇭", "a", "b", "ab", "ba", "\0", "写于", "b"]


@given(
    words=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=30), block=st.integers(1, 9)
)
def test_texts_are_a_list_of_str(words: list[str], block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "BLOCK", block)
        found = Texts.of(words)
        assert (len(found), list(found), found[:], found[1::2]) == (len(words), words, words, words[1::2])
        assert [found[i] for i in range(-len(words), len(words))] == words * 2
        for word in {*words, "b", "", "éa"}:
            assert found.find(word) == [i for i, other in enumerate(words) if other == word]
            assert (word in found) == (word in words)
        assert found.distinct == (len(set(words)) == len(words))


def test_texts_equal_what_holds_the_same() -> None:
    found = Texts.of(WORDS)
    assert found == WORDS
    assert list.__eq__(WORDS, found) is NotImplemented  # so that a list may stand on either side
    assert found == Texts.of(tuple(WORDS))
    assert found != WORDS[:-1]
    assert found != [*WORDS[:-1], "c"]
    assert Texts.of(["a"]) != "a"
    assert Texts.of(found) is found
    with pytest.raises(IndexError):
        found[len(WORDS)]
    assert repr(Texts.of(["a", "b"])) == "['a', 'b']"
    assert "100 in all" in repr(Texts.of(["a"] * 100))


def test_columns_are_the_texts_again_with_their_index() -> None:
    columns = Texts.of(WORDS).columns()
    assert {name: column.dtype for name, column in columns.items()} == {
        "content": torch.uint8, "offsets": torch.int64, "hashes": torch.int64, "order": torch.int64,
    }  # fmt: skip
    again = Texts(**columns)
    assert again == WORDS
    assert "index" in vars(again)  # none has to be made
    assert again.find("b") == [0, 4, 9]
    assert (
        pickle.loads(pickle.dumps(again)) == deepcopy(again) == WORDS
    )  # as other processes and copies of a graph need


def test_texts_with_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_hashes", lambda content, bounds: np.zeros(len(bounds) - 1, np.uint64))
    monkeypatch.setattr(texts, "_hash", lambda content: 0)
    found = Texts.of(["a", "b", "c"])
    assert [found.find(word) for word in "abcd"] == [[0], [1], [2], []]
    assert found.distinct
    assert not Texts.of(["a", "b", "a"]).distinct


def test_hashes_of_like_texts_differ() -> None:
    words = [f"{a}{b}" for a in range(300) for b in ("", "/", "//", "e", "\0")] + ["ab", "ba", "", "a", "aa"]
    hashes, order = Texts.of(words).index
    assert len(np.unique(hashes)) == len(words)
    assert sorted(order) == list(range(len(words)))
    assert hashes.dtype == np.uint64
