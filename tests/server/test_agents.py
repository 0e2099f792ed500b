"""Tools for agents, asked by the official MCP client over stdin and stdout of a real process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters, stdio_client

from small import run_with_constraints

CITY, COUNTRY, OTHER = "City 7", "CountryHland", "CountryBland"
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "known": ("check_fact", {"head": CITY, "relation": "located in", "tail": COUNTRY}),
    "second": ("check_fact", {"head": CITY, "relation": "located in", "tail": OTHER}),
    "unknown": ("check_fact", {"head": "Cty 7", "relation": "locatd in", "tail": COUNTRY}),
    "missing": ("missing_facts", {"entity": "CountryBland", "limit": 3}),
    "no such": ("missing_facts", {"entity": "CountryHlnd"}),
    "similar": ("similar_entities", {"entity": CITY, "limit": 4}),
    "explained": ("explain_fact", {"head": CITY, "relation": "located in", "tail": COUNTRY}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(run_with_constraints().save(tmp_path_factory.mktemp("agents") / "run"))


@pytest.fixture(scope="module")
def session(folder: Path) -> dict[str, Any]:
    """What a client gets to know: the tools, the instructions, and the result of each call."""

    async def talk() -> dict[str, Any]:
        parameters = StdioServerParameters(
            command=sys.executable, args=["-m", "harmonium", "mcp", str(folder)], env=dict(os.environ)
        )
        async with Client(stdio_client(parameters)) as client:
            found: dict[str, Any] = {"tools": (await client.list_tools()).tools, "instructions": client.instructions}
            return found | {name: await client.call_tool(*call) for name, call in CALLS.items()}

    return asyncio.run(talk())


def result(session: dict[str, Any], name: str) -> dict[str, Any]:
    answer = session[name]
    assert not answer.is_error, answer.content[0].text
    content: dict[str, Any] = answer.structured_content
    assert json.loads(answer.content[0].text) == content
    return content


def test_tools_only_read_and_describe_their_arguments_and_results(session) -> None:
    assert {tool.name for tool in session["tools"]} == {call[0] for call in CALLS.values()}
    for tool in session["tools"]:
        assert tool.annotations.read_only_hint and tool.description and tool.output_schema
        assert all(argument.get("description") for argument in tool.input_schema["properties"].values()), tool.name
    assert "located in" in session["instructions"]


def test_a_known_fact_is_supported_by_others_and_not_by_itself(session) -> None:
    check = result(session, "known")
    assert check["known"] and check["status"] == "supported" and check["probability"] is None
    assert check["fact"] not in [fact for support in check["support"] for fact in support["facts"]]


def test_similar_entities_come_with_what_they_share(session) -> None:
    found = result(session, "similar")
    assert found["entity"] == CITY and found["role"] is None and len(found["entities"]) == 4
    similarities = [each["similarity"] for each in found["entities"]]
    assert similarities == sorted(similarities, reverse=True) and CITY not in [
        each["name"] for each in found["entities"]
    ]


def test_a_second_answer_is_contradicted_by_the_known_one(session) -> None:
    check = result(session, "second")
    assert not check["known"] and check["status"] == "contradicted"
    (conflict,) = (each for each in check["contradictions"] if "one tail" in each["rule"])
    assert conflict["facts"] == [CALLS["known"][1]]


def test_unknown_names_of_a_fact_are_listed_with_similar_ones(session) -> None:
    check = result(session, "unknown")
    assert check["status"] is None and not check["known"]
    head, relation = check["unknown_names"]
    assert (head["slot"], relation["slot"]) == ("head", "relation")
    assert CITY in head["did_you_mean"] and "located in" in relation["did_you_mean"]


def test_missing_facts_are_those_that_the_graph_lacks_by_probability(session) -> None:
    facts = result(session, "missing")["facts"]
    probabilities = [fact["probability"] for fact in facts]
    assert 1 <= len(facts) <= 3 and probabilities == sorted(probabilities, reverse=True)
    assert all(fact["reason"] and OTHER in (fact["head"], fact["tail"]) for fact in facts)


def test_an_error_names_what_may_have_been_meant(session) -> None:
    answer = session["no such"]
    assert answer.is_error and "no entity named 'CountryHlnd'" in answer.content[0].text
    assert COUNTRY in answer.content[0].text


def test_an_explanation_compares_with_other_candidates(session) -> None:
    explained = result(session, "explained")
    assert explained["known"] and explained["evidence"] and explained["verdict"]
    assert COUNTRY not in [rival["name"] for rival in explained["rivals"]]
