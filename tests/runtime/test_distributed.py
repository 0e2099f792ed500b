"""World and ShardedTable, without processes: what each would hold, send and raise."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from harmonium.errors import PeerError
from harmonium.runtime.distributed import World, local_main_first
from harmonium.runtime.sharding import ShardedTable


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("n", [1, 4, 5, 17])
def test_shards_and_batch_slices_cover_everything_once(n: int, size: int) -> None:
    worlds = [World(rank, size) for rank in range(size)]
    for slices in ([world.shard(n) for world in worlds], [world.batch_slice(n) for world in worlds]):
        assert [row for part in slices for row in range(n)[part]] == list(range(n))
    assert [worlds[0].shard(n, rank) for rank in range(size)] == [world.shard(n) for world in worlds]


class Single(World):
    def all_to_all(self, rows: Tensor, sent: list[int] | None = None, received: list[int] | None = None) -> Tensor:
        assert sent is None or sum(sent) == len(rows)
        return rows.clone()  # everything is requested from this process itself


def test_a_sharded_table_serves_rows_and_sums_their_gradients() -> None:
    rows = torch.arange(12.0).view(6, 2)
    table = ShardedTable(rows, 6, Single(0, 1))
    assert torch.equal(table.fetch(torch.tensor([1, 4])), rows[[1, 4]])
    local_ids, gradient = table.reduce_gradient(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert (local_ids.tolist(), gradient.tolist()) == ([1, 4], [[1, 2], [3, 4]])


def test_the_main_process_of_a_machine_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[object] = []
    failed = False

    class Two(World):
        def any(self, flags: Sequence[bool]) -> list[bool]:
            events.append(list(flags))
            return [failed]

    for local_rank, expected in (("0", ["work", [False]]), ("1", [[False], "work"])):
        monkeypatch.setenv("LOCAL_RANK", local_rank)
        events.clear()
        with local_main_first(Two(int(local_rank), 2)):
            events.append("work")
        assert events == expected
    failed = True
    with pytest.raises(PeerError), local_main_first(Two(1, 2)):
        pytest.fail("it must not try")
