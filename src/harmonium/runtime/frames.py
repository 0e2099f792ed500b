"""Results as tables: `to_frame()` for polars, `to_pandas()` for pandas, with the same columns as the JSON."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from harmonium.errors import HarmoniumError
from harmonium.runtime.displayed import Displayed, one_line

if TYPE_CHECKING:
    import polars

SHOWN = 3  # rows in a repr


class HasJson(Protocol):
    def to_json(self) -> dict[str, Any]: ...


Row = TypeVar("Row", bound=HasJson | dict[str, Any])


class Tabular(Displayed):
    """A result that is a table."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """The rows, all with the same keys."""

    def to_frame(self) -> polars.DataFrame:
        """A polars DataFrame."""
        import polars

        return polars.DataFrame(self.records(), infer_schema_length=None)

    def to_pandas(self) -> Any:
        """A pandas DataFrame; pandas must be installed."""
        try:
            import pandas
        except ImportError as error:
            raise HarmoniumError("pandas is not installed; `pip install pandas`, or use to_frame() (polars)") from error
        return pandas.DataFrame(self.records(), index=getattr(self, "index_of_rows", None))


class ResultList(Tabular, list[Row], Generic[Row]):
    """A list of results (each a dict, or with `to_json`) that is also a table."""

    notes: tuple[object, ...] = ()  # for the user, such as rows that were skipped

    def __init__(self, rows: Iterable[Row] = (), title: str = "", index: Any = None) -> None:
        super().__init__(rows)
        self.title = title  # such as the question that these are the answers to
        self.index_of_rows = index  # of the pandas frame whose rows these results are about

    def records(self) -> list[dict[str, Any]]:
        return [row if isinstance(row, dict) else row.to_json() for row in self]

    def __repr__(self) -> str:
        names = [str(row.get("name") or row.get("text") or row) for row in ResultList(self[:SHOWN]).records()]
        shown = "; ".join(name[:60] for name in names) + ("; ..." if len(self) > SHOWN else "")
        return one_line(self, f"of {len(self):,}" + (f" ({self.title})" if self.title else ""), shown)


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
