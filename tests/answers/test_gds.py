"""DistMult for Neo4j's Graph Data Science: its formula on the exported vectors gives our scores."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import harmonium
from harmonium.config.settings import Config
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError
from harmonium.model.build import build_model
from harmonium.run.run import History, Run


def plain(graph: Graph, *overrides: str) -> Run:
    config = Config.read(None, ["model.entity_dim=6", "model.harmony=false", "model.composition=distmult", *overrides])
    model = build_model(config.model, graph.n_entities, graph.n_relations, seed=3).eval()
    model.form.scale.data.fill_(2.5)
    return Run(config, graph, model, History())


@pytest.mark.parametrize("reciprocal", ["false", "true"])
def test_the_formula_of_gds_gives_our_scores(graph: Graph, tmp_path: Path, reciprocal: str) -> None:
    """sum(source * type * target), as DistMultLinkScorer of GDS computes it in float64."""
    run = plain(graph, f"model.reciprocal={reciprocal}")
    harmonium.export(run, tmp_path / "gds", to="gds")
    with open(tmp_path / "gds" / "node_embeddings.csv", newline="", encoding="utf-8") as file:
        nodes = {row["id"]: np.array(row["embedding"].split(";"), dtype=float) for row in csv.DictReader(file)}
    settings = json.loads((tmp_path / "gds" / "gds.json").read_text(encoding="utf-8"))
    assert settings["scoring_function"] == "distmult"
    types = {name: np.array(vector) for name, vector in settings["relationship_type_embeddings"].items()}
    queries = graph.test
    tails = run.model.score_slot(Slot.TAIL, queries).detach().numpy()
    heads = run.model.score_slot(Slot.HEAD, queries).detach().numpy()
    for number, (head, relation, tail) in enumerate(graph.names_of(queries)):
        theirs = [float((nodes[head] * types[relation] * nodes[name]).sum()) for name in graph.entities.ids]
        assert theirs == pytest.approx(tails[number].tolist(), abs=1e-5)
        inverse = f"{relation} (inverse)" if reciprocal == "true" else relation
        theirs = [float((nodes[tail] * types[inverse] * nodes[name]).sum()) for name in graph.entities.ids]
        assert theirs == pytest.approx(heads[number].tolist(), abs=1e-5)


def test_the_script_loads_projects_and_predicts(graph: Graph, tmp_path: Path) -> None:
    harmonium.export(plain(graph), tmp_path / "gds", to="gds")
    script = (tmp_path / "gds" / "load.cypher").read_text(encoding="utf-8")
    parts = (
        "LOAD CSV WITH HEADERS FROM 'file:///node_embeddings.csv'", "n.`name` = row.id", "gds.graph.project",
        "gds.ml.kge.predict.stream", "nodeEmbeddingProperty: 'harmonium'", "scoringFunction: 'DistMult'",
    )  # fmt: skip
    assert all(part in script for part in parts)


@pytest.mark.parametrize("overrides", [("model.composition=complex",), ("model.harmony=true",)])
def test_models_that_gds_lacks_are_refused(graph: Graph, tmp_path: Path, overrides: tuple[str, ...]) -> None:
    config = Config.read(None, ["model.entity_dim=6", "model.harmony=false", "model.composition=distmult", *overrides])
    run = Run(config, graph, build_model(config.model, graph.n_entities, graph.n_relations, seed=3), History())
    with pytest.raises(HarmoniumError, match=r"GDS scores DistMult and TransE, not (complex|harmonic distmult)"):
        harmonium.export(run, tmp_path / "gds", to="gds")
    assert not (tmp_path / "gds").exists()
