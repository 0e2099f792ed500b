"""Results as tables: `to_frame()` for polars, `to_pandas()` for pandas, with the same columns as the JSON."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from harmonium.errors import HarmoniumError
from harmonium.runtime.displayed import Displayed, Line, Part, Table, one_line, percent

if TYPE_CHECKING:
    import polars

REPR_ROWS = 3  # shown in a repr
DISPLAYED_ROWS = 20  # of a long table
REPEATED_COLUMNS = ("id", "text", "index")  # which repeat other columns and are not displayed


class HasJson(Protocol):
    def to_json(self) -> dict[str, Any]: ...


Row = TypeVar("Row", bound=HasJson | dict[str, Any])


class Tabular(Displayed):
    """A result that is a table: a subclass defines `records`, and gets `to_frame` and `to_pandas`."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """The rows, all with the same keys."""

    def to_frame(self) -> polars.DataFrame:
        """A polars DataFrame."""
        import polars

        return polars.DataFrame(self.records(), infer_schema_length=None)

    def to_pandas(self) -> Any:
        """A pandas DataFrame; pandas must be installed."""
        return to_pandas(self.records(), getattr(self, "index_of_rows", None))


class ResultList(Tabular, list[Row], Generic[Row]):
    """A list of results (each a dict, or with `to_json`) that is also a table.

    If the class of the rows has a static method `table(title, rows)`, that defines the display; else the dicts do.
    """

    notes: tuple[object, ...] = ()  # for the user, such as rows that were skipped

    def __init__(self, rows: Iterable[Row] = (), title: str = "", index: Any = None) -> None:
        super().__init__(rows)
        self.title = title  # for example the query that these rows answer
        self.index_of_rows = index  # of the pandas frame that was passed in, for `to_pandas`

    def records(self) -> list[dict[str, Any]]:
        return [row if isinstance(row, dict) else row.to_json() for row in self]

    def display(self) -> Iterator[Part]:
        """The first rows, and the number of the others."""
        if not self:
            yield Line(f"{self.title}: no rows" if self.title else "no rows")
            return
        rows = self[:DISPLAYED_ROWS]
        yield getattr(rows[0], "table", _table)(self.title, rows)
        if len(self) > len(rows):
            yield Line(f"{len(self) - len(rows):,} more rows; to_pandas() or to_frame() has all", "dim")

    def __repr__(self) -> str:
        names = [str(row.get("name") or row.get("text") or row) for row in ResultList(self[:REPR_ROWS]).records()]
        shown = "; ".join(name[:60] for name in names) + ("; ..." if len(self) > REPR_ROWS else "")
        return one_line(self, f"of {len(self):,}" + (f" ({self.title})" if self.title else ""), shown)


def _table(title: str, rows: Sequence[Any]) -> Table:
    """Rows of any kind; shares as percentages, columns that repeat others left out."""
    records = ResultList(rows).records()
    columns = [name for name in records[0] if name not in REPEATED_COLUMNS]
    cells = [[_cell(name, record[name]) for name in columns] for record in records]
    return Table(title, [name.replace("_", " ") for name in columns], cells)


def _cell(column: str, value: Any) -> Any:
    if column.endswith("probability"):
        return percent(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return " · ".join(map(str, value)) if isinstance(value, list | tuple) else value


def to_pandas(content: Any, index: Any = None) -> Any:
    """A pandas DataFrame of rows, or of columns by name."""
    try:
        import pandas
    except ImportError as error:
        raise HarmoniumError("pandas is not installed; `pip install pandas`, or use to_frame() (polars)") from error
    return pandas.DataFrame(content, index=index)


def index_of(table: Any, rows: Sequence[int]) -> Any:
    """The index of these rows of a pandas frame; None for anything else."""
    is_pandas = type(table).__module__.partition(".")[0] == "pandas" and hasattr(table, "columns")
    return table.index[list(rows)] if is_pandas else None


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """The lines of a Markdown table; no cell can end it or be read as markup."""
    lines = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join(_markdown_cell(cell) for cell in line) + " |" for line in lines]


def _markdown_cell(cell: Any) -> str:
    return re.sub(r"([|<>&])", r"\\\1", " ".join(str(cell).split()))
