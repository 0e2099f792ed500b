"""The API conforms to its OpenAPI description (schemathesis); FUZZ is the number of requests per operation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from harmonium.runtime.config import ModelConfig
from serving import Server, untrained
from small import make_graph

pytestmark = pytest.mark.network
INPUTS = int(os.environ.get("FUZZ", "10"))
NAMES = {
    "head": ["e1", "e5"], "tail": ["e2"], "entity": ["e1", "e7"], "relation": ["r0", "r1"], "first": ["e1"],
    "second": ["e3", "e4"], "type": ["e2"], "run": [0, 0, 0],
}  # fmt: skip
OPERATIONS = [
    "runs", "info", "search", "relations", "types", "facts", "fact", "neighbourhood", "missing", "compare", "predictions",
    "answers", "neighbours", "explain", "map",
]  # fmt: skip
CHECKS = [  # without positive_data_acceptance: OpenAPI cannot say that exactly two of three names are given
    not_a_server_error, status_code_conformance, content_type_conformance, response_headers_conformance,
    response_schema_conformance, negative_data_rejection,
]  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(untrained(make_graph(), ModelConfig("hole", 6, rank=2))) as started:
        yield started


@pytest.fixture(scope="module")
def schema(server: Server) -> Any:
    load_all_checks()
    return schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/api/v1/openapi.json")


def test_every_operation_is_tested(schema: Any) -> None:
    assert [one.ok().path for one in schema.get_all_operations()] == [f"/api/v1/{name}" for name in OPERATIONS]


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("name", OPERATIONS)
def test_answers_conform_to_the_schema(schema: Any, name: str, mode: GenerationMode) -> None:
    if (name, mode) == ("runs", GenerationMode.NEGATIVE):
        return  # takes nothing that could be wrong
    seen = set()

    @settings(
        max_examples=INPUTS,
        deadline=None,
        database=None,
        derandomize=INPUTS <= 10,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(schema[f"/api/v1/{name}"]["GET"].as_strategy(generation_mode=mode), st.data())
    def check(case: Any, data: st.DataObject) -> None:
        if mode is GenerationMode.POSITIVE:  # mostly names that exist, which are seldom guessed
            for key in NAMES.keys() & (case.query or {}).keys():
                case.query[key] = data.draw(st.sampled_from([*NAMES[key] * 3, case.query[key]]))
            if name == "answers" and data.draw(st.booleans()):  # exactly two names, which OpenAPI cannot say
                case.query = {"head": "e1", "relation": "r0"} | {k: v for k, v in case.query.items() if k not in NAMES}
        reply = case.call_and_validate(checks=CHECKS, timeout=60)
        seen.add(reply.status_code)

    check()
    assert (200 in seen) if mode is GenerationMode.POSITIVE else (422 in seen)
