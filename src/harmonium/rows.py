"""Results as tables: `to_frame()` for polars, `to_pandas()` for pandas, with the same columns as the JSON."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic, TypeVar

Row = TypeVar("Row")


class Tabular:
    """What can tell itself as records of one shape."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """One for each row of the table."""

    def to_frame(self) -> Any:
        """A polars DataFrame."""
        import polars

        return polars.DataFrame(self.records(), infer_schema_length=None)

    def to_pandas(self) -> Any:
        """The same for pandas, which must be installed."""
        try:
            import pandas
        except ImportError as error:
            from harmonium.errors import HarmoniumError

            raise HarmoniumError(
                "pandas is not installed; `pip install pandas`, or take to_frame() (polars)"
            ) from error
        return pandas.DataFrame(self.records())


class Rows(list[Row], Tabular, Generic[Row]):
    """A list of results (each a dict, or with `to_json`) that is also a table."""

    def records(self) -> list[dict[str, Any]]:
        return [row if isinstance(row, dict) else row.to_json() for row in self]
