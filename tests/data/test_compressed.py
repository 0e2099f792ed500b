from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import polars as pl
import pytest

from harmonium.data.compressed import create_file
from harmonium.errors import HarmoniumError
from kills import largest_file

TABLE = pl.DataFrame({"name": [f"entity {i}" for i in range(2000)]})


@pytest.mark.parametrize("name", ["facts.tsv", "facts.tsv.gz", "facts.tsv.xz", "facts.tsv.zst"])
@pytest.mark.parametrize(
    "write",
    [lambda file: file.write(bytes(range(256)) * 4096), TABLE.write_csv, TABLE.write_parquet, TABLE.write_ipc],
    ids=["bytes", "csv", "parquet", "arrow"],
)
def test_a_full_disk_is_an_error_and_the_earlier_file_stays(
    tmp_path: Path, name: str, write: Callable[[IO[bytes]], Any]
) -> None:
    path = tmp_path / name
    path.write_bytes(b"earlier")
    message = f"{name}: cannot be written .*File too large"
    with largest_file(1), pytest.raises(HarmoniumError, match=message), create_file(path) as file:
        write(file)
    assert path.read_bytes() == b"earlier" and [each.name for each in tmp_path.iterdir()] == [name]
