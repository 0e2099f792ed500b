"""Dropout on queries: in training, random coordinates of known vectors and of composed vectors are set to zero."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from harmonium.model.composition import SlotMap


def dropout_mask(shape: Sequence[int], share: float, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Factors that are zero with probability `share`, and otherwise 1 / (1 - share), so that their mean is one."""
    drawn = torch.rand(tuple(shape), generator=generator, device=like.device, dtype=like.dtype)
    return (drawn >= share).to(like.dtype) / (1 - share)


@dataclass(frozen=True)
class QueryDropout:
    """The masks of one batch, drawn when a slot is first scored, and shared by all candidates of a query.

    Candidates have no dropout (as in TuckER and ConvE): x = composed_mask * compose(mask * head, mask * relation, tail).
    """

    vectors: float  # share of the coordinates of known vectors
    composed: float  # share of the coordinates of composed vectors
    generator: torch.Generator
    masks: dict[Hashable, tuple[Tensor | None, Tensor | None, Tensor | None]] = field(default_factory=dict)

    def apply(self, query: Hashable, slot_map: SlotMap, dim: int) -> SlotMap:
        """The maps of queries with their masks; `query` identifies their open slot, `dim` is the size of x."""
        if query not in self.masks:
            self.masks[query] = self._draw(slot_map, dim)
        first, second, composed = self.masks[query]
        return replace(
            slot_map,
            first=slot_map.first if first is None else slot_map.first * first,
            second=slot_map.second if second is None else slot_map.second * second,
            mask=composed,
            relation_ids=None,  # queries of one relation no longer share a vector
            relation_table=None,
        )

    def _draw(self, slot_map: SlotMap, dim: int) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        first, second = slot_map.first, slot_map.second
        known = [
            dropout_mask(vectors.shape, self.vectors, first, self.generator) if self.vectors else None
            for vectors in (first, second)
        ]
        shape = (len(first), dim)
        composed = dropout_mask(shape, self.composed, first, self.generator) if self.composed else None
        return known[0], known[1], composed
