"""Tables of a Parquet file as Arrow messages. Imports nothing heavy but polars, as it runs in a separate process."""

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harmonium.errors import HarmoniumError

ALWAYS_ALLOWED_ROWS = 1 << 20  # however small the file is
MAX_ROWS_PER_BYTE = 8  # of a file: distinct facts take more than a bit each
MAX_THREADS = 8
MAX_DEPTH = 2  # of nested types: allows vectors, which are lists of numbers


def read_tables(file: str, rows: int) -> Iterator[list[bytes]]:
    """Messages of one table each, as an Arrow stream; at least one, which may be empty."""
    os.environ["POLARS_MAX_THREADS"] = str(min(MAX_THREADS, os.cpu_count() or 1))  # each thread takes memory
    import polars as pl

    try:
        frame = pl.scan_parquet(file, glob=False)
        for name, dtype in frame.collect_schema().items():
            if _depth(dtype) > MAX_DEPTH:
                raise HarmoniumError(f"{file}: its column '{name}' is nested; facts are columns of text or numbers")
        n_rows, size = frame.select(pl.len()).collect().item(), Path(file).stat().st_size
        if n_rows > max(ALWAYS_ALLOWED_ROWS, MAX_ROWS_PER_BYTE * size):
            raise HarmoniumError(
                f"{file}: {n_rows:,} rows in {size:,} bytes are one row again and again; remove repetitions"
            )
        start = 0
        while start == 0 or start < n_rows:
            yield [_to_arrow(frame.slice(start, rows).collect())]
            start += rows
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise HarmoniumError(f"{file}: not a Parquet file that can be read ({error})") from error


def _depth(dtype: Any) -> int:
    """How deeply a type is nested: 1 for text, 2 for a list of numbers."""
    depth, inner = 0, [dtype]
    while inner:
        depth += 1
        inner = [child for parent in inner for child in _children(parent)]
    return depth


def _children(dtype: Any) -> list[Any]:
    fields = getattr(dtype, "fields", None)
    if fields is not None:
        return [field.dtype for field in fields]
    return [dtype.inner] if getattr(dtype, "inner", None) is not None else []


def _to_arrow(table: Any) -> bytes:
    content = io.BytesIO()
    table.write_ipc_stream(content, compat_level=_oldest())  # an older format, in which batches share no text buffers
    return content.getvalue()


def _oldest() -> Any:
    import polars as pl

    return pl.CompatLevel.oldest()
