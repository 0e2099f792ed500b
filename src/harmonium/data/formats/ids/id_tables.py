"""Tables of ids, as in the folders of OpenKE and LibKGE: a vocabulary in one file, facts as ids into it in others."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl

from harmonium.data.compressed import numbered_lines
from harmonium.data.formats.tab_files import read_columns
from harmonium.data.graph import Note
from harmonium.data.names import clean_name, is_empty
from harmonium.data.tables.columns import COLUMNS
from harmonium.data.tables.skipped_rows import SkippedRows
from harmonium.data.tables.source import Source
from harmonium.data.tables.text_encoding import UTF_8, reject_bytes
from harmonium.errors import HarmoniumError


@dataclass(frozen=True)
class IdTables:
    """Reads facts as ids into two vocabularies."""

    entities: list[str]
    relations: list[str]
    skipped: SkippedRows

    def read(self, path: Path, columns: Sequence[str], skip_lines: int = 0, separator: str = "\t") -> pl.DataFrame:
        """The facts of one file. If some lines cannot be used, it is read again line by line, to name or skip them."""
        try:
            table = read_integers(path, columns, skip_lines, separator)
            known = [pl.col(column).is_between(0, size - 1) for column, size in self._sizes.items()]
            if table.select(pl.all_horizontal(known).all()).item():
                return table.select(COLUMNS)
            error = HarmoniumError(f"{path}: has ids without names")
        except HarmoniumError as unreadable:
            error = unreadable
        n_skipped = self.skipped.total
        rows = list(self._usable_rows(path, columns, skip_lines, separator))
        self.skipped.finish()
        if self.skipped.total == n_skipped:
            raise error
        return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.Int64), orient="row").select(COLUMNS)

    @property
    def _sizes(self) -> dict[str, int]:
        return {"head": len(self.entities), "relation": len(self.relations), "tail": len(self.entities)}

    def _usable_rows(
        self, path: Path, columns: Sequence[str], skip_lines: int, separator: str
    ) -> Iterator[tuple[int, ...]]:
        for number, line in numbered_lines(path, partial(reject_bytes, path, UTF_8, self.skipped)):
            if number <= skip_lines or is_empty(line):
                continue
            cells = line.rstrip("\r\n").split(separator)
            if reason := self._reason(cells, columns):
                self.skipped.reject(path, f":{number}", reason, text=line)
            else:
                yield tuple(map(int, cells))

    def _reason(self, cells: Sequence[str], columns: Sequence[str]) -> str:
        """Why a row cannot be used; empty if it can."""
        if len(cells) != len(columns):
            count = f"found {len(cells)} column{'s' * (len(cells) != 1)}"
            return f"{count}, expected {len(columns)}: {' '.join(columns)}"
        try:
            ids = dict(zip(columns, map(int, cells), strict=True))
        except ValueError:
            return f"expected whole numbers for {' '.join(columns)}"
        for column, size in self._sizes.items():
            if ids[column] >= 1 << 63:
                return f"expected whole numbers for {' '.join(columns)}"
            if not 0 <= ids[column] < size:
                return f"{column} {ids[column]} is not an id of the vocabulary (0 to {size - 1})"
        return ""

    def source(
        self,
        name: str,
        splits: Mapping[str, pl.DataFrame],
        entity_names: dict[str, str],
        relation_names: dict[str, str],
        notes: Sequence[Note] = (),
    ) -> Source:
        """The facts as a Source. Names are cleaned as in every format; ids whose names become equal are united."""
        entities, entity_ids, changed_entities = _clean_vocabulary(self.entities, "entities")
        relations, relation_ids, changed_relations = _clean_vocabulary(self.relations, "relations")
        new_ids = {"head": entity_ids, "relation": relation_ids, "tail": entity_ids}
        tables: dict[str, pl.DataFrame] = {}
        for split, table in splits.items():
            tables[split] = table.with_columns(
                new_ids[column].gather(table[column]).alias(column) for column in COLUMNS
            )
        return Source(
            name,
            dict(tables),
            entities,
            relations,
            entity_names,
            relation_names,
            [*notes, *changed_entities, *changed_relations],
            self.skipped,
        )


def _clean_vocabulary(names: Sequence[str], kind: str) -> tuple[list[str], pl.Series, list[Note]]:
    """Distinct clean names, the new id of each old one, and notes on what was changed."""
    clean = [clean_name(name) for name in names]
    if (empty := next((index for index, name in enumerate(clean) if not name), None)) is not None:
        raise HarmoniumError(f"the name of id {empty} of the {kind} is empty; name it or remove it")
    number = {name: index for index, name in enumerate(dict.fromkeys(clean))}
    ids = pl.Series([number[name] for name in clean], dtype=pl.Int64)
    changed = [name for name, old in zip(clean, names, strict=True) if name != old]
    if not changed:
        return clean, ids, []
    united = f"; {len(clean) - len(number):,} became equal to other names" if len(number) < len(clean) else ""
    shown = ", ".join(changed[:3]) + ", ..." * (len(changed) > 3)
    text = f"cleaned {len(changed):,} names of {kind} (whitespace around or inside them, Unicode form){united}: {shown}"
    return list(number), ids, [Note(text, "cleaned", "", len(changed))]


def read_integers(path: Path, columns: Sequence[str], skip_lines: int = 0, separator: str = "\t") -> pl.DataFrame:
    """A table whose columns, except `name`, are whole numbers; an error names the line of another value."""
    text = read_columns(path, columns, skip_lines, separator)
    table = text.with_columns(pl.all().exclude("name").cast(pl.Int64, strict=False))
    bad = table.with_row_index().filter(pl.any_horizontal(pl.all().is_null()))
    if len(bad):
        line = bad["index"][0] + skip_lines + 1
        raise HarmoniumError(f"{path}:{line}: expected whole numbers for {' '.join(columns)}")
    return table


def names_by_id(path: Path, table: pl.DataFrame) -> list[str]:
    """Names in the order of their ids, which must be 0, 1, 2, ... each once, as each name must."""
    table = table.sort("id")
    if table["id"].to_list() != list(range(len(table))):
        raise HarmoniumError(f"{path}: ids must be 0 to {len(table) - 1}, each once")
    repeated = table.filter(table["name"].is_duplicated())
    if len(repeated):
        name = repeated["name"][0]
        ids = repeated.filter(pl.col("name") == name)["id"].to_list()
        raise HarmoniumError(
            f"{path}: '{name}' has the ids {ids[0]} and {ids[1]}; each name needs one, rename or merge"
        )
    names: list[str] = table["name"].to_list()
    return names
