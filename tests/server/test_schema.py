"""The API conforms to its OpenAPI description (schemathesis); FUZZ is the number of requests per operation."""

from __future__ import annotations

import os
import time
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

from harmonium.config.settings import ModelConfig
from harmonium.run.run import Run
from serving import ReviewServer
from small import make_graph, save_untrained

pytestmark = pytest.mark.network
INPUTS = int(os.environ.get("FUZZ", "10"))
NAMES = {
    "head": ["e1", "e5"], "tail": ["e2"], "entity": ["e1", "e7"], "relation": ["r0", "r1"], "first": ["e1"],
    "second": ["e3", "e4"], "type": ["e2"], "run": [0, 0, 0],
}  # fmt: skip
READ = [
    "runs", "info", "search", "relations", "types", "facts", "fact", "neighbourhood", "missing", "compare", "predictions",
    "answers", "neighbours", "explain", "map", "review/state", "review/judgements", "review/update",
]  # fmt: skip
WRITTEN = ["review/next", "review/judge", "review/undo", "review/fact", "review/update", "review/open"]
OPERATIONS = [("GET", name) for name in READ] + [("POST", name) for name in WRITTEN]
WITHOUT_PARAMETERS = ("runs", "review/state", "review/judgements", "review/update")
CHECKS = [  # without positive_data_acceptance: OpenAPI cannot say that exactly two of three names are given
    not_a_server_error, status_code_conformance, content_type_conformance, response_headers_conformance,
    response_schema_conformance, negative_data_rejection,
]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReviewServer]:
    folder = save_untrained(make_graph(), ModelConfig("hole", 6, rank=2), tmp_path_factory.mktemp("runs") / "run")
    with ReviewServer(Run.load(folder), None) as started:
        yield started
        end = time.monotonic() + 60
        while started.read("update")["state"] == "running" and time.monotonic() < end:
            time.sleep(0.1)


@pytest.fixture(scope="module")
def schema(server: ReviewServer) -> Any:
    load_all_checks()
    return schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/api/v1/openapi.json")


def test_every_operation_is_tested(schema: Any) -> None:
    described = [(one.ok().method.upper(), one.ok().path) for one in schema.get_all_operations()]
    assert sorted(described) == sorted((method, f"/api/v1/{name}") for method, name in OPERATIONS)


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(("method", "name"), OPERATIONS, ids=lambda value: value)
def test_answers_conform_to_the_schema(
    schema: Any, server: ReviewServer, method: str, name: str, mode: GenerationMode
) -> None:
    if method == "GET" and name in WITHOUT_PARAMETERS and mode is GenerationMode.NEGATIVE:
        return  # takes nothing that could be wrong
    seen = set()
    token = {"Authorization": f"Bearer {server.app.issued['ana']}"} if name.startswith("review/") else {}

    @settings(
        max_examples=INPUTS,
        deadline=None,
        database=None,
        derandomize=INPUTS <= 10,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(schema[f"/api/v1/{name}"][method].as_strategy(generation_mode=mode), st.data())
    def check(case: Any, data: st.DataObject) -> None:
        if mode is GenerationMode.POSITIVE:  # mostly names that exist, which are seldom guessed
            for values in (case.query or {}, case.body if isinstance(case.body, dict) else {}):
                for key in NAMES.keys() & values.keys():
                    values[key] = data.draw(st.sampled_from([*NAMES[key] * 3, values[key]]))
            if name == "answers" and data.draw(st.booleans()):  # exactly two names, which OpenAPI cannot say
                case.query = {"head": "e1", "relation": "r0"} | {k: v for k, v in case.query.items() if k not in NAMES}
        reply = case.call(headers=token, timeout=60)
        is_too_long = reply.status_code == 413  # which schemathesis does not take for a refusal of wrong data
        checks = [check for check in CHECKS if not (is_too_long and check is negative_data_rejection)]
        case.validate_response(reply, checks=checks)
        seen.add(reply.status_code)

    check()
    good = (
        {200, 400} if name in ("review/update", "review/open", "review/undo") else {200}
    )  # there may be nothing to do
    assert seen & good if mode is GenerationMode.POSITIVE else 422 in seen
