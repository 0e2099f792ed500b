"""A run as a repository of the Hugging Face Hub: the files of the run folder, a model card and the graph's statistics.

`Run.load` opens the folder, also after a download, and verifies every file of the run by its checksum.
"""

import html
import json
import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from harmonium.data.graph import Graph
from harmonium.errors import HarmoniumError
from harmonium.model.harmony import Sum
from harmonium.run import manifest as manifests
from harmonium.run.run import Run
from harmonium.runtime.folders import DERIVED
from harmonium.runtime.storage import read_verified, to_json, write
from harmonium.runtime.untrusted import harmless
from harmonium.version import __version__

CARD, CONFIG, STATISTICS, ATTRIBUTES = "README.md", "config.json", "graph.json", ".gitattributes"
LARGE_FILES = "*.safetensors filter=lfs diff=lfs merge=lfs -text\n*.graph filter=lfs diff=lfs merge=lfs -text\n"
METRICS = ("mrr", "hits@1", "hits@3", "hits@10")
SHOWN_RELATIONS = 20
logger = logging.getLogger("harmonium")


def write_hub_folder(run: Run, folder: Path, name: str) -> list[str]:
    """Write all files into an existing folder, and return their names; paths of this machine are left out."""
    public = replace(run, config=_without_paths(run))
    files = public.write_files(folder)
    files += _copy_computed(run, folder)
    contents = {
        CARD: card(public, name).encode(),
        CONFIG: to_json(_config(public)),
        STATISTICS: to_json(_statistics(run.graph)),
        ATTRIBUTES: LARGE_FILES.encode(),
    }
    for file, content in contents.items():
        write(folder / file, content)
    return [*files, *contents]


def _without_paths(run: Run) -> Any:
    """The settings, with names of files in place of their paths."""
    vectors = run.config.train.initial_vectors
    train = replace(run.config.train, initial_vectors=None if vectors is None else Path(vectors).name)
    return replace(run.config, data=run.graph.name, train=train)


def _copy_computed(run: Run, folder: Path) -> list[str]:
    """Copy what was computed from the run, such as its calibration, and name it in the new manifest."""
    if run.path is None:
        return []
    source, target = manifests.read(run.path), manifests.read(folder)
    computed = {}
    for file in DERIVED:
        if file not in source.files:
            continue
        try:  # verified, so that a link in a run of others publishes no file of ours
            computed[file] = write(folder / file, read_verified(run.path / file, source.files[file]))
        except HarmoniumError as error:
            logger.warning("%s; it is left out", str(error).partition("; ")[0])
    manifests.write(folder, replace(target, files=target.files | computed))
    return list(computed)


def _config(run: Run) -> dict[str, Any]:
    """What the Hub reads of a model."""
    return {
        "library_name": "harmonium",
        "harmonium_version": __version__,
        "model_type": run.model.composition.name,
        "architecture": describe_model(run),
        "n_entities": run.graph.n_entities,
        "n_relations": run.graph.n_relations,
        "model": asdict(run.config.model),
    }


def _statistics(graph: Graph) -> dict[str, Any]:
    counts = graph.facts().relation.bincount(minlength=graph.n_relations).tolist()
    relations = sorted(
        zip(map(graph.relations.name, range(graph.n_relations)), counts, strict=True), key=lambda r: -r[1]
    )
    return {
        "name": graph.name,
        "entities": graph.n_entities,
        "relations": graph.n_relations,
        "facts": {split: len(facts) for split, facts in graph.splits.items()},
        "facts_by_relation": dict(relations),
    }


def describe_model(run: Run) -> str:
    kind = "plain" if isinstance(run.model.form, Sum) else "harmonic"
    return f"{kind} {run.model.composition.name}, {run.config.model.entity_dim} dimensions"


# The card ------------------------------------------------------------------------------------------------------------


def card(run: Run, name: str) -> str:
    """The model card: metadata in YAML, then text."""
    parts = [
        _metadata(run, name),
        _introduction(run, name),
        _use(),
        _evaluation(run),
        _graph_table(run.graph),
        _limits(),
    ]
    return "\n".join(parts)


def _metadata(run: Run, name: str) -> str:
    """YAML, of which JSON is a part: every value is written as JSON."""
    data: dict[str, Any] = {
        "library_name": "harmonium",
        "license": "unknown",
        "pipeline_tag": "graph-ml",
        "tags": ["knowledge-graph", "link-prediction", "knowledge-graph-completion", run.model.composition.name],
    }
    if run.evaluation is not None:
        data["model-index"] = [{"name": clean(name), "results": [_result(run)]}]
    lines = [f"{key}: {_yaml(value)}" for key, value in data.items()]
    lines.insert(2, "# replace `unknown` by the licence that the facts of the graph allow")
    return "\n".join(["---", *lines, "---", ""])


def _result(run: Run) -> dict[str, Any]:
    """The metrics with their protocol, as an entry of a model index."""
    evaluation = run.evaluation
    assert evaluation is not None
    graph = clean(run.graph.name)
    protocol = evaluation.describe()
    return {
        "task": {"type": "graph-ml", "name": "Link prediction"},
        "dataset": {"type": graph, "name": graph, "split": evaluation.protocol.split},
        "metrics": [
            {
                "type": metric,
                "name": metric.upper() if metric == "mrr" else metric.title(),
                "value": value,
                "args": {"protocol": protocol},
            }
            for metric in METRICS
            if (value := _number(evaluation.metrics.get(metric))) is not None
        ],
    }


def _introduction(run: Run, name: str) -> str:
    graph = run.graph
    facts = sum(map(len, graph.splits.values()))
    return (
        f"# {text(name)}\n\n"
        f"Predicts missing facts of the knowledge graph *{text(graph.name)}* ({graph.n_entities:,} entities, "
        f"{graph.n_relations:,} relations, {facts:,} facts). Model: {describe_model(run)}, trained with harmonium "
        f"{text(run.environment.get('harmonium', __version__))}.\n\n"
        "**This repository contains all facts of the graph** (`data.graph`), with their names. Publish it only if you may "
        "publish them, and set the licence above.\n"
    )


def _use() -> str:
    return """## Use

```sh
pip install 'harmonium[hub]'
hf download OWNER/NAME --local-dir model
harmonium complete model --top 20
```

```python
import harmonium
from huggingface_hub import snapshot_download

run = harmonium.Run.load(snapshot_download("OWNER/NAME"))
answers = harmonium.predict(run, head="...", relation="...")
```

Replace OWNER/NAME by this repository. Every file of the run is verified by its size and sha256 (`run.json`) when it is
opened. There are no pickles: weights are safetensors, settings TOML, the rest JSON.
"""


def _evaluation(run: Run) -> str:
    evaluation = run.evaluation
    if evaluation is None:
        return "## Evaluation\n\nNot evaluated: the graph has neither test nor validation facts.\n"
    rows = {"this model": evaluation.metrics, **evaluation.baselines}
    table = [["", *METRICS], *([label, *(_shown(metrics.get(m)) for m in METRICS)] for label, metrics in rows.items())]
    warning = f"\n{text(evaluation.warning)}\n" if evaluation.warning else ""
    protocol = f"Protocol: {text(evaluation.describe())}. {evaluation.queries:,} queries."
    return f"## Evaluation\n\n{_table(table)}\n{protocol}\n{warning}"


def _graph_table(graph: Graph) -> str:
    statistics = _statistics(graph)
    relations = list(statistics["facts_by_relation"].items())
    rows = [["relation", "facts"], *([name, f"{count:,}"] for name, count in relations[:SHOWN_RELATIONS])]
    rest = len(relations) - SHOWN_RELATIONS
    more = f"\nand {rest:,} more relations (`{STATISTICS}`).\n" if rest > 0 else ""
    facts = ", ".join(f"{split} {count:,}" for split, count in statistics["facts"].items())
    return f"## Graph\n\nFacts: {facts}.\n\n{_table(rows)}{more}"


def _limits() -> str:
    return """## Limits

Predictions repeat the regularities of the graph, and its errors and gaps with them. Entities that are not in the graph have
no vectors; `harmonium update` gives them some from a few facts. Treat a predicted fact as a candidate to be checked.
"""


def _table(rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(map(text, row)) + " |" for row in rows]
    lines.insert(1, "| --- |" + " ---: |" * (len(rows[0]) - 1))
    return "\n".join(lines) + "\n"


def clean(name: str) -> str:
    """A name without control characters."""
    return harmless(name).encode("utf-8", "replace").decode()


def text(name: str) -> str:
    """A name in Markdown: neither markup nor HTML."""
    escaped = html.escape(clean(name), quote=False)
    return "".join(f"\\{c}" if c in "\\`*_{}[]()#+!|~" else c for c in escaped)


def _yaml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _number(value: float | None) -> float | None:
    return None if value is None or value != value else round(value, 6)


def _shown(value: float | None) -> str:
    return "-" if value is None or value != value else f"{value:.3f}"
