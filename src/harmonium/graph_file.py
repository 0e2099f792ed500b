"""A graph in one binary file (safetensors): quick to load, nothing but torch and safetensors needed.

train, valid, test   (n, 3) int32
entities, relations  UTF-8 bytes: identifier TAB name, a line each, in id order
"""

from __future__ import annotations

import json
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from harmonium.errors import HarmoniumError
from harmonium.graph import SPLITS, Graph, Triples, Vocabulary
from harmonium.suspicion import refuse_pickle

ENDING = ".graph"


def to_bytes(graph: Graph) -> bytes:
    """The file's contents."""
    tensors = {split: getattr(graph, split).rows().int() for split in SPLITS}
    tensors |= {"entities": _lines(graph.entities), "relations": _lines(graph.relations)}
    about = json.dumps({"name": graph.name, "notes": graph.notes})  # in one entry: entries come in no fixed order
    return safetensors.torch.save(tensors, {"about": about})


def load(path: Path) -> Graph:
    """Read a file written by `to_bytes`."""
    refuse_pickle(Path(path))
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in (*SPLITS, "entities", "relations")}
        if "about" in metadata:
            about = json.loads(metadata["about"])
        else:  # written before format 2 of a run
            about = {"name": metadata["name"], "notes": json.loads(metadata["notes"])}
        entities, relations = _vocabulary(tensors["entities"], "entity"), _vocabulary(tensors["relations"], "relation")
        sizes = torch.tensor([len(entities), len(relations), len(entities)])
        for split in SPLITS:
            if tensors[split].dtype != torch.int32 or tensors[split].shape[1:] != (3,):
                raise ValueError(f"{split} is not a table of three ids")
            if ((tensors[split] < 0) | (tensors[split] >= sizes)).any():
                raise ValueError(f"{split} has an id without a name")
        splits = {split: Triples.from_rows(tensors[split]) for split in SPLITS}
        return Graph(entities, relations, **splits, name=str(about["name"]), notes=tuple(map(str, about["notes"])))
    except (SafetensorError, LookupError, TypeError, ValueError, RecursionError, OSError) as error:
        raise HarmoniumError(f"{path}: not a graph file that can be read ({error}); make it again") from error


def _lines(vocabulary: Vocabulary) -> Tensor:
    text = "".join(f"{name}\t{vocabulary.name(i)}\n" for i, name in enumerate(vocabulary.ids))
    return torch.frombuffer(bytearray(text.encode() or b"\n"), dtype=torch.uint8)


def _vocabulary(lines: Tensor, kind: str) -> Vocabulary:
    pairs = [line.split("\t") for line in lines.numpy().tobytes().decode().split("\n")[:-1]]
    ids, labels = zip(*pairs, strict=True) if pairs else ((), ())
    ids, labels = list(ids), list(labels)
    if len(set(ids)) < len(ids):
        raise ValueError(f"the same {kind} twice")
    return Vocabulary(ids, None if ids == labels else labels, kind)
