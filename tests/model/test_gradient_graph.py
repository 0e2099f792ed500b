"""GradientGraph: what it refuses."""

from __future__ import annotations

import pytest

from harmonium.data.triples import Triples
from harmonium.model.composition import find_composition
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Sum
from harmonium.runtime.errors import HarmoniumError


def test_impossible_models_are_refused() -> None:
    hole, one = find_composition("hole"), Triples.from_rows([[0, 0, 1]])
    with pytest.raises(HarmoniumError, match="5 dimensions.*hole.*6"):
        GradientGraph(hole, 4, 2, 6, Sum(5))
    with pytest.raises(HarmoniumError, match="'zero'.*calibrated, paper"):
        GradientGraph(hole, 4, 2, 6, Sum(6)).initialise("zero")
    with pytest.raises(HarmoniumError, match="plain hole.*no tokens"):
        GradientGraph(hole, 4, 2, 6, Sum(6)).initialise().tokens(one)
