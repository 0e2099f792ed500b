"""Readers and settings on damaged and invented input. `make fuzz` runs longer; FUZZ is the number of inputs for each."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzzing import attempt, targets

INPUTS = int(os.environ.get("FUZZ", "25"))
PIECES = [
    b"\t", b"\n", b"\r", b"\r\n", b" ", b'"', b"'", b",", b";", b"\\", b"\0", b"\x1b[2J", b"\xff", b"\xef\xbb\xbf",
    b"\x80\x04", b"<", b">", b"[", b"]", b"{", b"}", b".", b"=", b"-1", b"0", b"1e999", b"9" * 30, b"9" * 5000, b"null",
    b"nan", b"true", b"%0A", b"%09", b"\\ud800", "\u202e".encode(), "\u2028".encode(), b"[" * 3000,
    b"a" * 200_000, b"PK\x03\x04",
    b"..", b"/",
]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """A valid file with a few bytes cut, doubled, overwritten or inserted."""
    content = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.sampled_from([0, 1, 2, 5, 40])))
        piece = draw(st.sampled_from([b"", content[start:end] * 2, *PIECES]) | st.binary(max_size=6))
        content = content[:start] + piece + content[end:]
    return content


@pytest.mark.parametrize("name", targets())
def test_only_clear_errors_come_out(name: str) -> None:
    target = targets()[name]
    invented = st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace"))

    @settings(max_examples=INPUTS, suppress_health_check=list(HealthCheck), database=None)
    @given(damaged(target.seeds) | damaged(target.seeds) | invented)
    def check(content: bytes) -> None:
        attempt(target, content)

    check()


@pytest.mark.parametrize("name", targets())
def test_the_seeds_are_valid(name: str) -> None:
    assert attempt(targets()[name], targets()[name].seeds[0])


def test_the_corpus_is_read_or_refused() -> None:
    """Inputs that reached new code when fuzz/readers.py ran; a fifth of them unless FUZZ asks for more."""
    with tarfile.open(Path(__file__).parent.parent / "fuzz" / "corpus.tar.xz") as corpus:
        files = [(member.name.split("/")[0], corpus.extractfile(member)) for member in corpus]
        inputs = [(name, file.read()) for name, file in files if file is not None]
    assert {name for name, _ in inputs} <= targets().keys()
    for name, content in inputs[:: 1 if "FUZZ" in os.environ else 5]:
        attempt(targets()[name], content)


def test_earlier_failures() -> None:
    assert attempt(targets()["libkge entity_strings.del"], b"9" * 5000 + b"\tnobody\n")
    assert not attempt(targets()["run run.json"], b'{"format": 4, "made": "\\ud800", "sha256": ""}')
    assert attempt(targets()["nt"], b"<urn:harmonium:name:a%0Ab%09c> <u:r> <urn:harmonium:name:> .\n")
