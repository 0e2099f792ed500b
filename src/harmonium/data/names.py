"""One spelling of a name: blanks and Unicode normal form, which nobody sees, make no difference."""

import re
import unicodedata

ZERO_WIDTH = "\u200b\u2060\ufeff"  # zero-width space, word joiner, byte order mark
BLANKS = "".join(character for character in map(chr, range(0x3001)) if character.isspace()) + ZERO_WIDTH
NEEDS_CLEANING = r"^ | $|  |[^ -~]"  # anything but printable ASCII with single blanks inside
LINE_BREAKS = (
    r"[\t-\r\x1c-\x1e\x85\u2028\u2029]+"  # and tabs: blanks in names, which other files hold in lines and columns
)
PLACEHOLDERS = ("#n/a", "n/a", "<na>", "nan", "null", "none", "-", "--", "?")  # of cells without a value, in any case

_REMOVE_ZERO_WIDTH = str.maketrans("", "", ZERO_WIDTH)
_line_break = re.compile(LINE_BREAKS).search
_needs_cleaning = re.compile(NEEDS_CLEANING).search


def clean_name(text: str) -> str:
    """The name without blanks around it, with single blanks inside it, in Unicode normal form C.

    Non-breaking blanks, tabs and line breaks become blanks; zero-width spaces are dropped. Case is kept.
    """
    if not _needs_cleaning(text):
        return text
    return unicodedata.normalize("NFC", " ".join(text.translate(_REMOVE_ZERO_WIDTH).split()))


def has_line_break(text: str) -> bool:
    return bool(_line_break(text))


def is_empty(text: str) -> bool:
    """Whether nothing is left of a name when it is cleaned."""
    return not text.strip(BLANKS)


def is_placeholder(name: str) -> bool:
    """Whether a cell says that there is no value, such as N/A or null."""
    return name.strip(BLANKS).casefold() in PLACEHOLDERS
