from __future__ import annotations

import pytest

from harmonium.data.graph import Graph
from small import make_graph


@pytest.fixture(scope="session")
def graph() -> Graph:
    return make_graph()
