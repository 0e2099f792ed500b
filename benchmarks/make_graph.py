"""Generate a synthetic graph with power-law degrees, as text, in chunks.

python benchmarks/make_graph.py big.tsv --triples 100000000 --entities 10000000
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl

PART = 1 << 21


def make(out: Path, triples: int, entities: int, relations: int, seed: int = 0) -> None:
    """Lines of head TAB relation TAB tail; the k-th entity and relation are drawn in proportion to k^(-2/3)."""
    random = np.random.default_rng(seed)
    with open(out, "wb") as file:
        for start in range(0, triples, PART):
            count = min(PART, triples - start)

            def names(prefix: str, size: int, count: int = count) -> pl.Series:
                ids = (size * random.random(count) ** 3).astype(np.int64)
                return pl.select(pl.lit(prefix) + pl.lit(pl.Series(ids)).cast(pl.String)).to_series()

            columns = {
                "head": names("/e/", entities),
                "relation": names("/r/", relations),
                "tail": names("/e/", entities),
            }
            pl.DataFrame(columns).write_csv(file, include_header=False, separator="\t", quote_style="never")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    for name, number in (("triples", 1_800_000), ("entities", 200_000), ("relations", 1000), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=number)
    make(**vars(parser.parse_args()))
