"""A plain DistMult for Neo4j's Graph Data Science library, whose gds.ml.kge.predict takes its vectors.

    node_embeddings.csv   identifier of each node, and its vector separated by ;
    gds.json              what the client's gds.model.distmult.create takes: a vector for each relationship type
    load.cypher           loads the vectors into node properties and projects the graph, with an example of a prediction

The library scores sum(source * type * target), so that the scale of our scores goes into the types, and ranks are ours.
"""

import csv
import io
import json
from typing import Any

import numpy as np

from harmonium.answers.send.neo4j_facts import cypher_text, id_property
from harmonium.data.formats.neo4j.address import quoted
from harmonium.errors import HarmoniumError
from harmonium.model.harmony import Sum
from harmonium.run.run import Run

FILES = ("node_embeddings.csv", "gds.json", "load.cypher")
PROPERTY, LABEL, PROJECTION = "harmonium", "HarmoniumEntity", "harmonium"
INVERSE = " (inverse)"  # added to the type of a question about heads, where a model has vectors of its own for them


def gds_files(run: Run) -> dict[str, bytes]:
    """The files by name."""
    model, graph = run.model, run.graph
    if model.composition.name != "distmult" or not isinstance(model.form, Sum):
        raise HarmoniumError(
            f"GDS scores DistMult and TransE, not {'' if isinstance(model.form, Sum) else 'harmonic '}"
            f"{model.composition.name}; train one for it: harmonium train --preset plain --set model.composition=distmult"
        )
    entities = model.entities().detach().cpu().numpy()
    relations = (model.relations().detach() * model.form.scale.detach()).cpu().numpy()
    types = list(graph.relations.ids)
    types += [name + INVERSE for name in types] if model.reciprocal else []
    embeddings = dict(zip(types, relations.tolist(), strict=True))
    settings = {
        "scoring_function": "distmult",
        "node_embedding_property": PROPERTY,
        "relationship_type_embeddings": embeddings,
    }
    id = id_property(graph)
    return {
        "node_embeddings.csv": _node_table(list(graph.entities.ids), entities),
        "gds.json": (json.dumps(settings, ensure_ascii=False) + "\n").encode(),
        "load.cypher": _script(id, next(iter(embeddings.items()))).encode(),
    }


def _node_table(names: list[str], vectors: np.ndarray[Any, Any]) -> bytes:
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["id", "embedding"])
    for name, vector in zip(names, vectors, strict=True):
        table.writerow([name, ";".join(map(repr, vector.tolist()))])
    return file.getvalue().encode()


def _script(id: str | None, example: tuple[str, list[float]]) -> str:
    """Cypher for cypher-shell, after node_embeddings.csv was put into the server's folder `import`."""
    match = "elementId(n) = row.id" if id is None else f"n.{quoted(id)} = row.id"
    relation, vector = example
    return f"""// 1. The vectors of all nodes; change the property that identifies them if it is another one.
LOAD CSV WITH HEADERS FROM 'file:///node_embeddings.csv' AS row
MATCH (n) WHERE {match}
SET n:{LABEL}, n.{PROPERTY} = [x IN split(row.embedding, ';') | toFloat(x)];

// 2. The graph in memory.
CALL gds.graph.project('{PROJECTION}', {{{LABEL}: {{properties: '{PROPERTY}'}}}}, '*');

// 3. The ten best targets of every node for one type; gds.json has the vectors of all types.
CALL gds.ml.kge.predict.stream('{PROJECTION}', {{
  sourceNodeFilter: '{LABEL}', targetNodeFilter: '{LABEL}', nodeEmbeddingProperty: '{PROPERTY}',
  relationshipTypeEmbedding: {json.dumps(vector)}, scoringFunction: 'DistMult', topK: 10
}}) YIELD sourceNodeId, targetNodeId, score
RETURN gds.util.asNode(sourceNodeId) AS source, {cypher_text(relation)} AS type,
  gds.util.asNode(targetNodeId) AS target, score
ORDER BY score DESC LIMIT 25;
"""
