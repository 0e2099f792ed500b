"""Names: how they are cleaned when they are read, and when two of them are spellings of one."""

import re
import unicodedata

ZERO_WIDTH = "\u200b\u2060\ufeff"  # zero-width space, word joiner, byte order mark
WHITESPACE = "".join(character for character in map(chr, range(0x3001)) if character.isspace()) + ZERO_WIDTH
NEEDS_CLEANING = r"^ | $|  |[^ -~]"  # anything but printable ASCII with single spaces inside
LINE_BREAKS = (
    r"[\t-\r\x1c-\x1e\x85\u2028\u2029]+"  # and tabs: spaces in names, which other files hold in lines and columns
)
PLACEHOLDERS = ("#n/a", "n/a", "<na>", "nan", "null", "none", "-", "--", "?")  # missing values, in any letter case

_REMOVE_ZERO_WIDTH = str.maketrans("", "", ZERO_WIDTH)
_line_break = re.compile(LINE_BREAKS).search
_needs_cleaning = re.compile(NEEDS_CLEANING).search
_number_form = re.compile(r"\d[\u00b2\u00b3\u00b9\u2070-\u209c\u2150-\u218b]").search  # 10², 3½


def clean_name(text: str) -> str:
    """The name without whitespace around it, with single spaces inside it, in Unicode normal form C.

    Non-breaking spaces, tabs and line breaks become spaces; zero-width spaces are dropped. Case is kept.
    """
    if not _needs_cleaning(text):
        return text
    return unicodedata.normalize("NFC", " ".join(text.translate(_REMOVE_ZERO_WIDTH).split()))


def spelling_key(name: str) -> str:
    """Equal for names that differ only in case, whitespace (underscores included), Unicode form or accents.

    Compatibility forms count as Unicode forms (H₂O, ﬁ, full-width letters), except after a digit: 10² is not 102.
    """
    plain = name
    if not name.isascii():
        plain = unicodedata.normalize("NFD" if _number_form(name) else "NFKD", name)
        plain = "".join(character for character in plain if not unicodedata.combining(character))
    return " ".join(plain.replace("_", " ").casefold().split()) or name


def relation_key(name: str) -> str:
    """`spelling_key` that also splits camel case and hyphens: equal for directedBy, DIRECTED_BY and directed-by."""
    return spelling_key(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("-", " "))


def has_line_break(text: str) -> bool:
    return bool(_line_break(text))


def is_empty(text: str) -> bool:
    """Whether a name is empty once cleaned."""
    return not text.strip(WHITESPACE)


def is_placeholder(name: str) -> bool:
    """Whether a cell stands for a missing value, such as N/A or null."""
    return name.strip(WHITESPACE).casefold() in PLACEHOLDERS
