"""The explorer answers what the library computes."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path

import pytest
import torch

import harmonium
from harmonium.analysis.neighbours import nearest_triples
from harmonium.config.settings import ModelConfig
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.server.explorer import Explorer
from harmonium.server.name_search import NameIndex, plain
from serving import Server, untrained
from small import make_graph

pytestmark = pytest.mark.network
FACT = {"head": "q4", "relation": "next", "tail": "q5"}
SLOTS = ("head", "relation", "tail")


def test_names_by_beginning_then_part_then_similarity() -> None:
    vocabulary = Vocabulary(["Zürich", "New York", "York", "Yorkshire", "Ayork", "Genoa"])
    names = NameIndex(vocabulary, torch.tensor([9, 5, 1, 7, 99, 3]))
    assert [match.name for match in names.search("york", 4)] == ["York", "Yorkshire", "New York", "Ayork"]
    assert [match.name for match in names.search("ZURI", 1)] == ["Zürich"]
    assert names.search("Yrok", 2)[0].name in ("York", "Ayork")
    assert [match.facts for match in names.search("", 2)] == [99, 9]
    assert plain("  É t é ") == "e t e"


def test_facts_are_all_that_mention_an_entity(server: Server, run: harmonium.Run) -> None:
    page = server.get("facts", entity="person 3", limit=50).json
    by_split = {split: run.graph.names_of(triples) for split, triples in run.graph.splits.items()}
    expected = {(*names, split) for split, facts in by_split.items() for names in facts if "person 3" in names}
    assert {(*(fact[slot]["name"] for slot in SLOTS), fact["split"]) for fact in page["facts"]} == expected
    assert page["total"] == len(expected) == len(page["facts"])
    second = server.get("facts", entity="q3", offset=1, limit=2).json
    assert (second["facts"], second["total"]) == (page["facts"][1:3], page["total"])


@pytest.mark.parametrize("new_only", [False, True])
@pytest.mark.parametrize(
    "given", [{"head": "q2", "relation": "next"}, {"relation": "twin", "tail": "q5"}, {"head": "q2", "tail": "q3"}]
)
def test_answers_are_those_of_predict(server: Server, run: harmonium.Run, given: dict, new_only: bool) -> None:
    reply = server.get("answers", **given, limit=6, new_only=new_only).json
    expected = harmonium.predict(run, **given, top=6, new_only=new_only)
    assert [a[reply["open"]]["id"] for a in reply["answers"]] == [a.id for a in expected]
    assert [a["score"] for a in reply["answers"]] == pytest.approx([a.score for a in expected], rel=1e-5)
    assert [a["split"] for a in reply["answers"]] == [a.known for a in expected]
    everyone = server.get("answers", **given, limit=60, new_only=new_only, typed=False).json
    assert reply["has_one_answer"] == (reply["open"] != "relation")  # `next` and `twin` have one value, which is known
    assert not everyone["has_one_answer"]
    assert len(everyone["answers"]) == len(harmonium.predict(run, **given, top=60, new_only=new_only, typed=False))


def triple_of(fact: dict) -> tuple[str, ...]:
    return tuple(fact[slot]["id"] for slot in SLOTS)


def test_predictions_are_the_missing_facts_of_an_entity() -> None:
    """As head and as tail, with the numbers of `predict` with one name."""
    run = untrained(make_graph(20, 3, (200, 60, 60)), ModelConfig("distmult", 6))
    with Server(run) as server:
        reply = server.get("predictions", entity="e7", limit=50).json
    expected = harmonium.predict(run, head="e7", top=50)
    expected += [row for row in harmonium.predict(run, tail="e7", top=50) if row.head != "e7"]
    expected = sorted(expected, key=lambda row: -row.probability)[:50]
    assert len(expected) > 20
    assert reply["queries"] == 6
    assert [triple_of(fact) for fact in reply["facts"]] == [(row.head, row.relation, row.tail) for row in expected]
    probabilities = [row.probability for row in expected]
    assert [fact["probability"] for fact in reply["facts"]] == pytest.approx(probabilities, rel=1e-4)
    assert {fact["open"] for fact in reply["facts"] if fact["head"]["id"] == "e7"} == {"tail"}


def test_both_directions_of_a_symmetric_fact_have_the_same_probability() -> None:
    """Each entity lists it once."""
    pairs = [(i, (i + step) % 20) for i in range(20) for step in (1, 3, 4, 7)]
    rows = torch.tensor([row for i, j in pairs for row in ((i, 0, j), (j, 0, i))])
    splits = {
        name: Triples.from_rows(part)
        for name, part in zip(("train", "valid", "test"), rows.split([100, 50, 10]), strict=True)
    }
    run = untrained(dataclasses.replace(make_graph(20, 1, (1, 1, 1)), **splits), ModelConfig("hole", 6))
    explorer = Explorer(run)
    assert explorer.opened.fact_calibration() is not None
    by_pair: dict[frozenset[str], list[float]] = {}
    for name in run.graph.entities.ids:
        for fact in explorer.predictions(name, 100).facts:
            assert fact.head.id == name
            by_pair.setdefault(frozenset((fact.head.id, fact.tail.id)), []).append(fact.probability)
    assert {len(values) for values in by_pair.values()} == {2}
    for first, second in by_pair.values():
        assert first == pytest.approx(second, rel=1e-4)


@pytest.mark.parametrize("slot", [Slot.HEAD, Slot.TAIL])
def test_neighbours_are_those_of_the_library(server: Server, run: harmonium.Run, slot: Slot) -> None:
    expected = nearest_triples(run.model, run.graph, run.graph.triple(*FACT.values()), slot, 4).to_json()
    reply = server.get("neighbours", **FACT, slot=slot.value, limit=4).json
    assert reply["rank"] == expected["rank"]
    for space in ("composed", "token"):
        for ours, theirs in zip(reply[space], expected[space], strict=True):
            assert ours == theirs | {"distance": pytest.approx(theirs["distance"], rel=1e-4)}


def test_lambda_recomputes_tokens_with_the_same_w(server: Server, run: harmonium.Run) -> None:
    harmony = run.model.harmony
    largest = torch.linalg.eigvalsh(harmony.matrix().detach().double())[-1].item()
    allowed = server.get("neighbours", **FACT).json["faithfulness"]
    assert allowed["current"] == allowed["trained"] == harmony.faithfulness
    assert allowed["largest_eigenvalue"] == pytest.approx(largest, rel=1e-5)
    assert largest < allowed["minimum"] < 1.1 * largest
    composed = run.model.compose(run.graph.triple(*FACT.values())).detach()
    for faithfulness in (allowed["minimum"], 2.5, 40.0):
        reply = server.get("neighbours", **FACT, **{"lambda": faithfulness}).json
        assert reply["faithfulness"]["current"] == pytest.approx(faithfulness)
        spread = torch.linalg.inv(torch.eye(harmony.dim) - harmony.matrix().detach() / faithfulness)
        for near in reply["token"][:3]:
            other = run.model.compose(run.graph.triple(near["name"], "next", "q5")).detach()
            assert near["distance"] == pytest.approx(((other - composed) @ spread).norm().item(), rel=1e-3)
    infinite = server.get("neighbours", **FACT, **{"lambda": "inf"}).json
    assert infinite["faithfulness"]["current"] is None
    assert [n["name"] for n in infinite["token"]] == [n["name"] for n in infinite["composed"]]
    for point in infinite["points"]:
        assert point["token"] == pytest.approx(point["composed"], abs=1e-3)
    assert server.get("neighbours", **FACT).json["faithfulness"]["current"] == harmony.faithfulness


def test_the_map_shows_the_principal_axes(server: Server, run: harmonium.Run) -> None:
    reply = server.get("map").json
    assert len(reply["points"]) == 40
    vectors = run.model.entities().detach().double()
    centred = vectors - vectors.mean(0)
    expected = torch.linalg.svd(centred).S[:2]
    for axis, size in zip(("x", "y"), expected.tolist(), strict=True):
        assert sum(p[axis] ** 2 for p in reply["points"]) ** 0.5 == pytest.approx(size, rel=1e-2)
    assert reply["share"] == pytest.approx((expected.square().sum() / centred.square().sum()).item(), rel=1e-2)
    facts = run.graph.names_of(run.graph.facts())
    for point in reply["points"]:
        roles = [f"{relation} (head)" for head, relation, _ in facts if head == point["name"]]
        counts = Counter(roles + [f"{relation} (tail)" for _, relation, tail in facts if tail == point["name"]])
        assert counts[reply["roles"][point["role"]]] == max(counts.values())
    assert server.get("map", limit=3, entity="q9").json["points"][-1]["id"] == "q9"


def test_info_describes_the_run_but_not_its_path(server: Server, run: harmonium.Run, tmp_path: Path) -> None:
    reply = server.get("info").json
    assert reply["graph"]["entities"] == 40
    assert reply["run"]["metrics"]["protocol"]["split"] == "test"
    saved = Explorer(dataclasses.replace(run, path=tmp_path / "mine")).info
    assert saved["name"] == "mine"
    assert str(tmp_path) not in json.dumps(saved, default=vars)
    command = f"harmonium update '{tmp_path}/my runs/mine' --out={tmp_path}/more"
    updated = run.update(remove=[("q1", "next", "q1")], command=command)
    (entry,) = Explorer(dataclasses.replace(updated, path=tmp_path / "more")).info["run"]["updates"]
    assert (entry["command"], entry["change"]) == ("harmonium update mine more", "1 recorded as false")


def test_a_wrong_name_gets_suggestions(server: Server) -> None:
    reply = server.get("facts", entity="persn 12")
    assert (reply.status, reply.json["unknown"]) == (404, "persn 12")
    assert {"id": "q12", "name": "person 12"} in reply.json["suggestions"]
    assert server.get("answers", head="q1", relation="nxt").json["suggestions"][0]["name"] == "next"
    bare = make_graph()
    twins = dataclasses.replace(bare, entities=Vocabulary(bare.entities.ids, ["twin"] * bare.n_entities))
    with pytest.raises(HarmoniumError, match="12 entity names match 'twin'"):
        Explorer(untrained(twins, ModelConfig("distmult", 6))).facts("twin", None, 0, 1)
