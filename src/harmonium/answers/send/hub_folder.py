"""A run as a repository of the Hugging Face Hub: the files of the run folder and a model card.

`Run.load` opens the folder, also after a download, and verifies every file of the run by its checksum.
"""

import html
import json
import logging
from dataclasses import replace
from pathlib import Path

from harmonium.errors import HarmoniumError
from harmonium.model.build import title
from harmonium.run import manifest as manifests
from harmonium.run.run import Run
from harmonium.runtime.folders import DERIVED
from harmonium.runtime.frames import markdown_table
from harmonium.runtime.storage import read_verified, write
from harmonium.runtime.untrusted import harmless

LARGE_FILES = "*.safetensors filter=lfs diff=lfs merge=lfs -text\n*.graph filter=lfs diff=lfs merge=lfs -text\n"
CARD_METRICS = ("mrr", "hits@1", "hits@3", "hits@10")
CARD = """# {name}

Predicts missing facts of the knowledge graph *{graph}*: {facts:,} facts about {entities:,} entities in {relations:,}
relations. Model: {model}, trained with [harmonium](https://pypi.org/project/harmonium/).

**This repository contains all facts of the graph** (`data.graph`), with their names. Publish it only if you may publish
them, and set the licence above.

## Use

```python
import harmonium
from huggingface_hub import snapshot_download

run = harmonium.Run.load(snapshot_download("OWNER/NAME"))
run.complete(top=20)
```

## Evaluation

{evaluation}

Predictions repeat the regularities of the graph, and its errors and gaps with them. Treat a predicted fact as a candidate
to be checked.
"""
logger = logging.getLogger("harmonium")


def write_hub_folder(run: Run, folder: Path, name: str) -> list[str]:
    """Write all files into an existing folder, and return their names. Paths of this machine are removed."""
    vectors = run.config.train.initial_vectors
    settings = replace(run.config.train, initial_vectors=None if vectors is None else Path(vectors).name)
    public = replace(run, config=replace(run.config, data=run.graph.name, train=settings))
    files = public.write_files(folder)
    files += _copy_computed(run, folder)
    contents = {"README.md": card(public, name), ".gitattributes": LARGE_FILES}
    for file, content in contents.items():
        write(folder / file, content.encode())
    return [*files, *contents]


def _copy_computed(run: Run, folder: Path) -> list[str]:
    """Copy files derived from the run, such as its calibration, and list them in the new manifest."""
    if run.path is None:
        return []
    source, target = manifests.read(run.path), manifests.read(folder)
    computed = {}
    for file in DERIVED:
        if file not in source.files:
            continue
        try:  # checks sizes and sums: a link in a foreign run cannot publish a local file
            computed[file] = write(folder / file, read_verified(run.path / file, source.files[file]))
        except HarmoniumError as error:
            logger.warning("%s; it is left out", str(error).partition("; ")[0])
    manifests.write(folder, replace(target, files=target.files | computed))
    return list(computed)


def card(run: Run, name: str) -> str:
    """The model card: metadata in YAML (as JSON, its subset), then text. Names are escaped in both."""
    graph, evaluation = run.graph, run.evaluation
    tags = ["knowledge-graph", "link-prediction", run.model.composition.name]
    metadata = {"library_name": "harmonium", "license": "unknown", "pipeline_tag": "graph-ml", "tags": tags}
    metrics = "Not evaluated: the graph has neither test nor validation facts."
    if evaluation is not None:
        rows = {"this model": evaluation.metrics, **evaluation.baselines}
        table = [[label, *(f"{row[metric]:.3f}" for metric in CARD_METRICS)] for label, row in rows.items()]
        metrics = "\n".join([*markdown_table(["", *CARD_METRICS], table), "", f"Protocol: {evaluation.describe()}."])
    text = CARD.format(
        name=_markdown(name), graph=_markdown(graph.name), facts=sum(map(len, graph.splits.values())),
        entities=graph.n_entities, relations=graph.n_relations, model=_markdown(title(run.config)), evaluation=metrics,
    )  # fmt: skip
    head = "\n".join(f"{key}: {json.dumps(value)}" for key, value in metadata.items())
    return f"---\n# replace `unknown` by the licence that the facts of the graph allow\n{head}\n---\n\n{text}"


def _markdown(name: str) -> str:
    """Escape a name for Markdown, without HTML and control characters."""
    escaped = html.escape(harmless(name).encode("utf-8", "replace").decode(), quote=False)
    return "".join(f"\\{c}" if c in "\\`*_{}[]()#+!|~" else c for c in escaped)
