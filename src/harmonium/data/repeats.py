"""Find and drop repeated facts, in little memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import torch
from torch import Tensor

from harmonium.data.graph import Note
from harmonium.data.growing_column import ROWS_PER_CHUNK, GrowingColumn, select_triples
from harmonium.data.index import hash_ids
from harmonium.data.tables.columns import COLUMNS, WEIGHT
from harmonium.data.triples import Triples

HASH_MULTIPLIER = 0x2545F4914F6CDD1D  # odd, so that multiplying modulo 2^64 loses nothing


def drop_repeated(splits: dict[str, Triples]) -> list[Note]:
    """Drop repeated triples within each split, in place; returns a note for each split that had any."""
    notes = []
    for split, triples in splits.items():
        repeated = find_repeats(triples)
        if count := int(repeated.sum()):
            text = f"{split}: dropped {count:,} repeated triples of {len(triples):,}"
            notes.append(Note(text, "repeated", split, count))
            kept = select_triples(triples, ~repeated)
            if triples.weight is not None:
                kept, differing = _with_largest_weights(kept, triples[repeated])
                text = f"{split}: {differing:,} facts are given with different weights; the largest counts"
                notes += [Note(text, "different weights", split, differing)] * bool(differing)
            splits[split] = kept
    return notes


def _with_largest_weights(facts: Triples, repeated: Triples) -> tuple[Triples, int]:
    """Give each fact the largest weight among its repetitions; also returns how many facts had differing weights."""
    weight, differing = facts.weights().clone(), 0
    again = _weight_table(repeated).group_by(COLUMNS).agg(pl.max(WEIGHT).alias("most"), pl.min(WEIGHT).alias("least"))
    for start in range(0, len(facts), ROWS_PER_CHUNK):
        table = _weight_table(facts[start : start + ROWS_PER_CHUNK]).with_row_index("row", offset=start)
        table = table.join(again, on=COLUMNS, how="inner")
        rows = torch.from_numpy(table["row"].to_numpy().astype(np.int64))
        weight[rows] = torch.from_numpy(table.select(pl.max_horizontal(WEIGHT, "most")).to_series().to_numpy().copy())
        differing += len(table.filter((pl.col("most") != pl.col(WEIGHT)) | (pl.col("least") != pl.col(WEIGHT))))
    return replace(facts, weight=weight), differing


def _weight_table(facts: Triples) -> pl.DataFrame:
    table = pl.DataFrame(facts.to_rows().numpy(), schema=list(COLUMNS))
    return table.with_columns(pl.Series(WEIGHT, facts.weights().numpy()))


def find_repeats(triples: Triples) -> Tensor:
    """(n,) bool: whether each triple repeats an earlier one.

    To save memory, hashes are sorted one range at a time, and only triples with equal hashes are compared.
    """
    hashes, repeated = GrowingColumn(), torch.zeros(len(triples), dtype=torch.bool)
    for chunk in triples.chunks(ROWS_PER_CHUNK):
        hashes.append(hash_ids((chunk.head * HASH_MULTIPLIER + chunk.relation) * HASH_MULTIPLIER + chunk.tail).numpy())
    keys, bits = hashes.tensor(), (len(triples) // ROWS_PER_CHUNK).bit_length()
    for leading_bits in range(1 << bits):
        in_range = ((chunk >> 63 - bits == leading_bits).nonzero()[:, 0] for chunk in keys.split(ROWS_PER_CHUNK))
        rows = torch.cat([chunk + ROWS_PER_CHUNK * number for number, chunk in enumerate(in_range)])
        key, order = keys[rows].sort()
        equal = torch.zeros(len(key), dtype=torch.bool)
        equal[1:] = key[1:] == key[:-1]
        equal[:-1] |= equal[1:].clone()
        candidates = rows[order[equal]].sort().values
        again = pl.DataFrame(triples[candidates].to_rows().numpy()).select(~pl.struct(pl.all()).is_first_distinct())
        repeated[candidates[torch.from_numpy(again.to_series().to_numpy())]] = True
    return repeated
