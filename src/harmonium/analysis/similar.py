"""The entities whose vectors are nearest to that of an entity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from harmonium.answers.open_run import OpenRun, open_run
from harmonium.errors import whole_number
from harmonium.run.run import Run
from harmonium.runtime.frames import ResultList


def similar(run: Run | OpenRun | str | Path, entity: str, *, top: int = 10) -> ResultList[dict[str, Any]]:
    """The `top` entities most similar to an entity, by the cosine of their vectors; the entity itself is left out.

    Similar in all they are known for; `neighbours` says what is similar within one fact.

    >>> harmonium.similar("runs/demo", "Copper", top=5)
    """
    opened = open_run(run)
    index, names = opened.graph.entities.index(entity), opened.graph.entities
    vectors = opened.vectors.entities.detach()
    cosine = F.normalize(vectors.float(), dim=1) @ F.normalize(vectors[index].float(), dim=0)
    cosine[index] = -torch.inf
    best = cosine.topk(min(whole_number("top", top, least=1), len(cosine) - 1))
    rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return ResultList(
        [{"id": names.ids[other], "name": names.name(other), "similarity": value} for other, value in rows],
        f"most similar to {names.name(index)}",
    )
