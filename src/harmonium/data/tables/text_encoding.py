"""Detect the encoding of a text: UTF-8, UTF-16 or -32 by its first bytes or, if guessing is allowed, Windows-1252."""

import codecs
from itertools import takewhile
from pathlib import Path

from harmonium.data.compressed import MAX_LINE, READ_ERRORS, open_bytes
from harmonium.data.graph import Note
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.errors import HarmoniumError

UTF_8 = "utf-8"
WESTERN = "cp1252"  # what spreadsheets write in western Europe and America
EXAMINED_LINES = 1_000_000


def guess_encoding(path: Path, may_guess: bool = False) -> str:
    """utf-16 or -32 by the first bytes; cp1252 if `may_guess` and no line that is not ASCII is UTF-8; else utf-8."""
    try:
        with open_bytes(path) as file:
            if encoding := _by_first_bytes(file.read(64)):
                return encoding
            file.seek(0)
            compared = takewhile(
                lambda line: 0 < len(line) < MAX_LINE, (file.readline(MAX_LINE) for _ in range(EXAMINED_LINES))
            )
            lines = [line for line in compared if not line.isascii()] if may_guess else []
    except READ_ERRORS:
        return UTF_8  # whoever reads the file reports the error
    if not lines or any(_is(line, UTF_8) for line in lines):
        return UTF_8
    return WESTERN if all(_is(line, WESTERN) for line in lines) else UTF_8


def choose_encoding(path: Path, given: str | None, may_guess: bool, notes: list[Note]) -> str:
    """The encoding of a text, with a note where it is a guess."""
    encoding = given or guess_encoding(path, may_guess)
    if encoding == WESTERN and given is None:
        note = Note(f"{path.name}: read as Windows-1252, as it is not UTF-8; --encoding NAME reads another", "encoding")
        notes += [note] * (note not in notes)
    return encoding


def _by_first_bytes(start: bytes) -> str | None:
    """UTF-16 or UTF-32 by a byte order mark; UTF-16 without one by its zeros: every other byte of Latin letters."""
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    even, odd = start[::2], start[1::2]
    if len(odd) > 1 and b"\0" in even + odd:
        if not even.strip(b"\0") and b"\0" not in odd:
            return "utf-16-be"
        if not odd.strip(b"\0") and b"\0" not in even:
            return "utf-16-le"
    return None


def _is(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def check_encoding(name: str) -> None:
    try:
        codecs.lookup(name)
    except LookupError:
        raise HarmoniumError(f"no encoding '{name}'; usual ones are utf-8, cp1252, latin-1 and utf-16") from None


def reject_bytes(path: Path, encoding: str, skipped: SkippedRows, number: int, raw: bytes) -> None:
    """Reject a line that cannot be decoded in this encoding."""
    name = "UTF-8" if encoding == UTF_8 else encoding
    advice = f"; save the file as UTF-8, or give {'its' if encoding == UTF_8 else 'another'} --encoding, such as cp1252"
    skipped.reject(path, f":{number}", f"not {name} text", advice, raw.decode("utf-8", "replace"))
