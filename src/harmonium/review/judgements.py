"""What several judgements say together: facts accepted, rejected and disputed; the reader that `harmonium update` uses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harmonium.errors import HarmoniumError
from harmonium.review.store import BY_HAND, FactIds, Judgement, load_judgements

if TYPE_CHECKING:
    from harmonium.run.run import Run

TABLE_SUFFIXES = (".tsv", ".csv", ".jsonl", ".parquet")  # suffixes of the files of judgements
UPDATED = re.compile(r"(?<=.)\.update-\d+\Z")  # suffix of a folder that a review has updated


@dataclass(frozen=True)
class JudgedFact:
    """All judgements of one fact that hold, at most one of each reviewer."""

    fact: FactIds
    judgements: tuple[Judgement, ...]

    @property
    def verdict(self) -> str:
        """accepted or rejected where all reviewers who decided agree, disputed where they do not, else unsure."""
        decided = {judgement.verdict for judgement in self.judgements} - {"unsure"}
        return "disputed" if len(decided) > 1 else next(iter(decided), "unsure")

    @property
    def is_by_hand(self) -> bool:
        """Whether a person entered the fact, instead of choosing it among predicted ones."""
        return any(judgement.order == BY_HAND for judgement in self.judgements)

    def to_row(self) -> dict[str, Any]:
        reviewers = ", ".join(judgement.reviewer for judgement in self.judgements)
        columns = dict(zip(("head", "relation", "tail"), self.fact, strict=True))
        return columns | {"verdict": self.verdict, "reviewers": reviewers}


@dataclass(frozen=True)
class Judgements:
    """Facts by identifier: those that people accepted, and those that they rejected. Disputed ones are in neither list."""

    accepted: list[FactIds]
    rejected: list[FactIds]
    disputed: list[FactIds]


def read_judgements(path: str | Path) -> Judgements:
    """The facts of a file of judgements that everyone who decided accepted, or rejected; the file is only read."""
    facts = by_fact(load_judgements(path))
    lists = (
        [each.fact for each in facts if each.verdict == verdict] for verdict in ("accepted", "rejected", "disputed")
    )
    return Judgements(*lists)


def by_fact(judgements: Iterable[Judgement]) -> list[JudgedFact]:
    """Judgements by fact, in the order in which facts were first judged."""
    facts: dict[FactIds, list[Judgement]] = {}
    for judgement in judgements:
        facts.setdefault(judgement.fact, []).append(judgement)
    return [JudgedFact(fact, tuple(each)) for fact, each in facts.items()]


def updated_name(name: str, number: int) -> str:
    """The name of a folder for an update of a run, made in its review: demo.update-1 of demo or of demo.update-7."""
    return f"{UPDATED.sub('', name)}.update-{number}"


def default_path(run: Run | str | Path) -> Path:
    """The file of judgements beside a run folder, where it stays when the folder is replaced: runs/demo.review.sqlite.

    Updates that were made in a review share it: runs/demo.update-1 has the same file as runs/demo.
    """
    folder = run if isinstance(run, str | Path) else run.path
    if folder is None:
        raise HarmoniumError("the run is in no folder, so name a file for the judgements (--judgements FILE)")
    folder = Path(folder).resolve()
    return folder.with_name(f"{UPDATED.sub('', folder.name)}.review.sqlite")


# Files ---------------------------------------------------------------------------------------------------------------


def check_out(path: Path) -> None:
    """Refuse a file that cannot be written before any work is done."""
    from harmonium.answers.send.result_file import check_path
    from harmonium.data.compressed import strip_compression

    if strip_compression(path).suffix not in TABLE_SUFFIXES:
        raise HarmoniumError(f"{path}: unknown format; the name must end in {', '.join(TABLE_SUFFIXES)}")
    check_path(path)


def write_judgements(path: Path, judgements: Iterable[Judgement], run: str) -> int:
    """Write judgements with who made them, when and on what: a table, by the suffix; returns their number."""
    from harmonium.answers.send.result_file import write_rows

    check_out(path)
    return write_rows(path, (judgement.to_json() for judgement in judgements), run)


def write_facts(path: Path, judgements: Iterable[Judgement], verdict: str, run: str) -> int:
    """Write the facts with one verdict, for `harmonium update --add` or `--remove`; returns their number."""
    from harmonium.answers.send.result_file import write_rows

    check_out(path)
    rows = [fact.to_row() for fact in by_fact(judgements) if fact.verdict == verdict]
    return write_rows(path, iter(rows), run)
