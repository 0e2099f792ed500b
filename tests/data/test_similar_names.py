"""New names that look like known ones."""

from __future__ import annotations

import pytest

from harmonium.data import similar_names
from harmonium.data.similar_names import find_spellings, one_letter_apart


@pytest.mark.parametrize(
    ("new", "known", "differs"),
    [
        ("hamburg", "Hamburg", "spelling"),
        ("New  York", "New York", "spelling"),
        ("new_york", "New York", "spelling"),
        ("U.S.A.", "USA", "spelling"),
        ("livesIn", "lives in", "spelling"),
        ("Hambrug", "Hamburg", "one letter"),
        ("Munchen", "München", "one letter"),
        ("Hamburgg", "Hamburg", "one letter"),
    ],
)
def test_spellings_of_known_names(new: str, known: str, differs: str) -> None:
    assert find_spellings(["something else", new], ["another", known]) == [(new, known, differs)]


@pytest.mark.parametrize(
    ("new", "known"), [("Iraq", "Iran"), ("room 12", "room 13"), ("C++", "C#"), ("Austria", "Australia"), ("1.5", "15")]
)
def test_other_names_are_not_alike(new: str, known: str) -> None:
    assert find_spellings([new], [known]) == []


def test_each_new_name_is_listed_once_and_long_lists_are_not_compared_by_letter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert find_spellings(["BERLIN", "Berlim"], ["Berlin", "berlin"]) == [
        ("BERLIN", "Berlin", "spelling"), ("Berlim", "Berlin", "one letter"),
    ]  # fmt: skip
    assert one_letter_apart(["Berlim", "Bremenn"], ["Berlin", "Bremen"]) == [
        ("Berlim", "Berlin"),
        ("Bremenn", "Bremen"),
    ]
    monkeypatch.setattr(similar_names, "MAX_PAIRS", 3)
    assert one_letter_apart(["Berlim", "Bremenn"], ["Berlin", "Bremen"]) == []
