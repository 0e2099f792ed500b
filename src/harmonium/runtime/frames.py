"""Results as tables: `to_frame()` for polars, `to_pandas()` for pandas, with the same columns as the JSON."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from harmonium.runtime.errors import HarmoniumError

if TYPE_CHECKING:
    import polars


class HasJson(Protocol):
    def to_json(self) -> dict[str, Any]: ...


Row = TypeVar("Row", bound=HasJson | dict[str, Any])


class Tabular:
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
        return pandas.DataFrame(self.records())


class ResultList(list[Row], Tabular, Generic[Row]):
    """A list of results (each a dict, or with `to_json`) that is also a table."""

    def records(self) -> list[dict[str, Any]]:
        return [row if isinstance(row, dict) else row.to_json() for row in self]
