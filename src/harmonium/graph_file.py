"""A graph in one binary file (safetensors): quick to load, nothing but torch and safetensors needed.

train.head, train.relation, ... test.tail   (n,) int64, so that a large file can be used as it lies on the disk
entities.content, .offsets, .hashes, .order the identifiers (texts.py); relations likewise
entities.names.content, ...                 names for people, where there are any
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from harmonium import tensor_file
from harmonium.errors import HarmoniumError
from harmonium.graph import SPLITS, Graph, Slot, Triples, Vocabulary
from harmonium.suspicion import refuse_pickle
from harmonium.texts import BLOCK, Texts

ENDING = ".graph"
VOCABULARIES = {"entities": "entity", "relations": "relation"}


def parts(graph: Graph) -> Iterator[Any]:
    """The file's contents, a part at a time."""
    tensors = {f"{split}.{slot.value}": getattr(graph, split)[slot] for split in SPLITS for slot in Slot}
    for name in VOCABULARIES:
        vocabulary: Vocabulary = getattr(graph, name)
        for place, texts in ((name, vocabulary.ids), (f"{name}.names", vocabulary.labels)):
            tensors |= {f"{place}.{column}": t for column, t in (texts.columns() if texts is not None else {}).items()}
    about = json.dumps({"name": graph.name, "notes": graph.notes})  # in one entry: entries come in no fixed order
    return tensor_file.parts(tensors, {"about": about})


def to_bytes(graph: Graph) -> bytes:
    """The file's contents."""
    return b"".join(map(bytes, parts(graph)))


def load(path: Path) -> Graph:
    """Read a file written by `parts`; a large one is mapped, so that it costs no memory of its own."""
    path = Path(path)
    refuse_pickle(path)
    try:
        tensors, metadata = tensor_file.read(path)
        if "about" in metadata:
            about = json.loads(metadata["about"])
        else:  # written before format 2 of a run
            about = {"name": metadata["name"], "notes": json.loads(metadata["notes"])}
        if "train" in tensors:
            tensors = _from_rows(tensors)
        vocabularies = {name: _vocabulary(tensors, name, kind) for name, kind in VOCABULARIES.items()}
        n_entities, n_relations = map(len, vocabularies.values())
        sizes = {Slot.HEAD: n_entities, Slot.RELATION: n_relations, Slot.TAIL: n_entities}
        splits = {split: Triples(*(tensors[f"{split}.{slot.value}"] for slot in Slot)) for split in SPLITS}
        for split, triples in splits.items():
            for slot, size in sizes.items():
                column = triples[slot]
                if column.dtype != torch.int64 or column.shape != (triples.head.numel(),):
                    raise ValueError(f"{split} is not three columns of ids")
                if len(column) and not 0 <= int(column.min()) <= int(column.max()) < size:
                    raise ValueError(f"{split} has an id without a name")
        return Graph(**vocabularies, **splits, name=str(about["name"]), notes=tuple(map(str, about["notes"])))
    except (SafetensorError, LookupError, TypeError, ValueError, RecursionError, RuntimeError, OSError) as error:
        raise HarmoniumError(f"{path}: not a graph file that can be read ({error}); make it again") from error


def _vocabulary(tensors: Mapping[str, Tensor], name: str, kind: str) -> Vocabulary:
    ids, labels = _texts(tensors, name), None
    if f"{name}.names.content" in tensors:
        labels = _texts(tensors, f"{name}.names")
        if len(labels) != len(ids):
            raise ValueError(f"{len(ids)} {name} have {len(labels)} names")
    if not ids.distinct:
        raise ValueError(f"the same {kind} twice")
    return Vocabulary(ids, labels, kind)


def _texts(tensors: Mapping[str, Tensor], name: str) -> Texts:
    """The texts of a file; what could not be decoded or found later is an error now."""
    content, offsets, hashes, order = (
        tensors[f"{name}.{column}"] for column in ("content", "offsets", "hashes", "order")
    )
    n = offsets.numel() - 1
    whole = content.dtype == torch.uint8 and content.dim() == 1 and n >= 0
    whole = whole and all(
        t.dtype == torch.int64 and t.shape == (k,) for t, k in ((offsets, n + 1), (hashes, n), (order, n))
    )
    if not whole or offsets[0] != 0 or offsets[-1] != len(content) or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"{name} is no list of texts")
    found = Texts(content, offsets, hashes, order)
    if n and not (0 <= int(order.min()) <= int(order.max()) < n and (found.index[0][1:] >= found.index[0][:-1]).all()):
        raise ValueError(f"{name} has no sound index")
    for start in range(0, n, BLOCK):
        bounds = offsets[start : start + BLOCK + 1]
        block = content[bounds[0] : bounds[-1]].numpy()
        text = block.tobytes()
        text.decode()
        inside = bounds[:-1][bounds.diff() > 0] - bounds[0]
        if ((block[inside.numpy()] & 0xC0) == 0x80).any() or b"\n" in text or b"\t" in text:
            raise ValueError(f"{name} has a text that is cut or broken into lines")
    return found


def _from_rows(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The columns of a file as it was before: splits (n, 3) int32, vocabularies lines of identifier TAB name."""
    found: dict[str, Tensor] = {}
    for split in SPLITS:
        if tensors[split].dtype != torch.int32 or tensors[split].shape[1:] != (3,):
            raise ValueError(f"{split} is not a table of three ids")
        found |= {
            f"{split}.{slot.value}": column
            for slot, column in zip(Slot, tensors[split].T.long().contiguous(), strict=True)
        }
    for name in VOCABULARIES:
        pairs = [line.split("\t") for line in tensors[name].numpy().tobytes().decode().split("\n")[:-1]]
        ids, labels = zip(*pairs, strict=True) if pairs else ((), ())
        texts = {name: ids} | ({f"{name}.names": labels} if ids != labels else {})
        for place, words in texts.items():
            found |= {f"{place}.{column}": tensor for column, tensor in Texts.of(words).columns().items()}
    return found
