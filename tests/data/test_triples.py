from __future__ import annotations

import torch

from harmonium.data.triples import Slot, Triples

ROWS = [[0, 0, 1], [2, 1, 0], [1, 0, 2], [0, 1, 1]]


def test_triples_are_three_columns() -> None:
    triples = Triples.from_rows(ROWS)
    assert len(triples) == 4
    assert [triples[slot].tolist() for slot in Slot] == [[0, 2, 1, 0], [0, 1, 0, 1], [1, 0, 2, 1]]
    assert triples.head.dtype == torch.int64
    assert triples.to_rows().tolist() == ROWS


def test_rows_are_chosen_by_slice_list_mask_and_chunk() -> None:
    triples = Triples.from_rows(ROWS)
    assert triples[1:3].to_rows().tolist() == ROWS[1:3]
    assert triples[[3, 0]].to_rows().tolist() == [ROWS[3], ROWS[0]]
    assert triples[triples.relation == 1].to_rows().tolist() == [ROWS[1], ROWS[3]]
    assert [chunk.to_rows().tolist() for chunk in triples.chunks(3)] == [ROWS[:3], ROWS[3:]]
    assert Triples.cat([triples[:1], triples[2:]]).to_rows().tolist() == [ROWS[0], *ROWS[2:]]


def test_no_triples_have_a_shape_too() -> None:
    nothing = Triples.from_rows([])
    assert (len(nothing), nothing.to_rows().shape, list(nothing.chunks(5))) == (0, (0, 3), [])
