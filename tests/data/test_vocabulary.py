from __future__ import annotations

import pytest

from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError

LABELLED = Vocabulary(["Q39", "Q142", "Q230", "Q1428"], ["Switzerland", "France", "Georgia", "Georgia"])


def test_a_name_is_an_identifier_or_a_label() -> None:
    assert LABELLED.index("Q142") == LABELLED.index("France") == 1
    assert LABELLED.name(0) == "Switzerland"
    assert Vocabulary(["a", "b"]).name(1) == "b"
    crossed = Vocabulary(["a", "b"], ["b", "a"])  # an identifier wins over a label
    assert (crossed.index("a"), crossed.index("b")) == (0, 1)


def test_titles_are_labels_only_if_they_are_distinct() -> None:
    assert LABELLED.unique_names() == LABELLED.ids
    assert Vocabulary(["a", "b"], ["Anna", "Ben"]).unique_names() == ["Anna", "Ben"]


def test_a_label_of_several_asks_for_an_identifier() -> None:
    with pytest.raises(HarmoniumError, match="2 entity names match 'Georgia'.*: Q230, Q1428"):
        LABELLED.index("Georgia")
    assert LABELLED.index("Q1428") == 3


@pytest.mark.parametrize(("name", "suggestion"), [("Swizerland", "Switzerland"), ("frnace", "France")])
def test_an_unknown_name_gets_similar_ones_as_suggestions(name: str, suggestion: str) -> None:
    with pytest.raises(HarmoniumError, match=f"no entity named '{name}' among 4; did you mean '{suggestion}'"):
        LABELLED.index(name)
    with pytest.raises(HarmoniumError, match="no relation named 'zzz' among 2$"):
        Vocabulary(["next", "before"], kind="relation").index("zzz")


@pytest.mark.parametrize("name", ["switzerland", "SWITZERLAND", "Sw\u00eftzerland", "q39"])
def test_names_are_found_in_another_spelling(name: str) -> None:
    assert LABELLED.index(name) == 0
    assert name not in LABELLED  # which asks for the name itself


def test_a_spelling_of_several_names_is_ambiguous() -> None:
    names = Vocabulary(["US", "us", "UK"])
    assert (names.index("US"), names.index("us"), names.index("uk")) == (0, 1, 2)
    with pytest.raises(HarmoniumError, match="2 entity names match 'Us'; give one of them: US, us"):
        names.index("Us")
    assert Vocabulary(["Q1"], ["q1"]).index("Q1") == 0  # one entity under both names


def test_suggestions_prefer_whole_words() -> None:
    names = Vocabulary(["Zinc hydroxide", "Zinc oxide", "Zinc", "Tin", "Copper(II) zinc alloy"])
    assert names.nearest("Zink")[0] == "Zinc"
    with pytest.raises(HarmoniumError, match="did you mean 'Zinc'"):
        names.index("Zink")
    assert names.nearest("hydroxide")[0] == "Zinc hydroxide"
