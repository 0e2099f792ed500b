"""A graph in one binary file (safetensors): quick to load, needs only torch and safetensors.

train.head, train.relation, ... test.tail   (n,) int64, so that a large file can be memory-mapped
train.weight, ...                           (n,) float64, if facts have weights
rejected.head, ...                          facts known to be false, if there are any
entities.content, .offsets, .hashes, .order identifiers of entities (name_column.py)
relations.content, ...                      identifiers of relations
entities.names.content, ...                 labels, if there are any

The metadata hold the name and notes of the graph, and the sha256 of the file computed without that entry.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor

from harmonium.data.graph import SPLITS, Graph, Note
from harmonium.data.name_column import NAMES_PER_BLOCK, NameColumn
from harmonium.data.triples import Slot, read_columns
from harmonium.data.vocabulary import Vocabulary
from harmonium.errors import HarmoniumError
from harmonium.runtime import tensor_file
from harmonium.runtime.untrusted import refuse_pickle

SUFFIX = ".graph"
REJECTED = "rejected"


def parts(graph: Graph) -> Iterator[bytes | memoryview]:
    """The contents of the file, in parts."""
    columns = graph.splits | ({REJECTED: graph.rejected} if len(graph.rejected) else {})
    tensors = {f"{name}.{slot.value}": triples[slot] for name, triples in columns.items() for slot in Slot}
    tensors |= {f"{name}.weight": facts.weight for name, facts in columns.items() if facts.weight is not None}
    for name, vocabulary in (("entities", graph.entities), ("relations", graph.relations)):
        for prefix, names in ((name, vocabulary.ids), (f"{name}.names", vocabulary.labels)):
            if names is not None:
                tensors |= {f"{prefix}.{column}": tensor for column, tensor in names.columns().items()}
    notes = [note.to_json() for note in graph.notes]
    about = json.dumps(
        {"name": graph.name, "notes": notes} | ({"reading": graph.reading} if graph.reading else {})
    )  # in one entry: entries have no fixed order
    return tensor_file.parts(tensors, {"about": about, "sha256": _checksum(tensors, about)})


def _checksum(tensors: Mapping[str, Tensor], about: str) -> str:
    checksum = hashlib.sha256()
    for part in tensor_file.parts(tensors, {"about": about}):
        checksum.update(part)
    return checksum.hexdigest()


def load(path: Path) -> Graph:
    """Read a file written by `parts`, if its checksum is right; a large one is memory-mapped."""
    path = Path(path)
    refuse_pickle(path)
    try:
        tensors, metadata = tensor_file.read(path)
        about = json.loads(metadata["about"])
        entities = _vocabulary(tensors, "entities", "entity")
        relations = _vocabulary(tensors, "relations", "relation")
        train, valid, test = (read_columns(tensors, split, len(entities), len(relations)) for split in SPLITS)
        rejected = train[:0]
        if f"{REJECTED}.head" in tensors:
            rejected = read_columns(tensors, REJECTED, len(entities), len(relations))
        notes = tuple(Note.from_json(note) for note in about["notes"])
        if metadata.get("sha256") != _checksum(tensors, metadata["about"]):
            raise ValueError("its contents do not match its checksum")
        reading = str(about.get("reading", ""))
        return Graph(entities, relations, train, valid, test, str(about["name"]), notes, rejected, reading)
    except (SafetensorError, LookupError, TypeError, ValueError, RecursionError, RuntimeError, OSError) as error:
        raise HarmoniumError(f"{path}: not a graph file that can be read ({error}); make it again") from error


def _vocabulary(tensors: Mapping[str, Tensor], name: str, kind: str) -> Vocabulary:
    ids, labels = _names(tensors, name), None
    if f"{name}.names.content" in tensors:
        labels = _names(tensors, f"{name}.names")
        if len(labels) != len(ids):
            raise ValueError(f"{len(ids)} {name} have {len(labels)} names")
    if not ids.distinct:
        raise ValueError(f"the same {kind} twice")
    return Vocabulary(ids, labels, kind)


def _names(tensors: Mapping[str, Tensor], name: str) -> NameColumn:
    """Load a column of names after checking that all of it decodes and that its index is sorted."""
    content, offsets = tensors[f"{name}.content"], tensors[f"{name}.offsets"]
    hashes, order = tensors[f"{name}.hashes"], tensors[f"{name}.order"]
    n = offsets.numel() - 1
    shapes = ((offsets, n + 1), (hashes, n), (order, n))
    valid = content.dtype == torch.uint8 and content.dim() == 1 and n >= 0
    valid = valid and all(column.dtype == torch.int64 and column.shape == (size,) for column, size in shapes)
    if not valid or offsets[0] != 0 or offsets[-1] != len(content) or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"{name} is not a list of names")
    names = NameColumn(content, offsets, hashes, order)
    ascending = (names.hash_index[0][1:] >= names.hash_index[0][:-1]).all()
    if n and not (ascending and 0 <= int(order.min()) <= int(order.max()) < n):
        raise ValueError(f"{name} has no sound index")
    for start in range(0, n, NAMES_PER_BLOCK):
        _check_text(name, content, offsets[start : start + NAMES_PER_BLOCK + 1])
    return names


def _check_text(name: str, content: Tensor, bounds: Tensor) -> None:
    """Raise a ValueError unless all names are UTF-8 without tabs and line breaks, and none starts inside a character."""
    block = content[bounds[0] : bounds[-1]].numpy()
    text = block.tobytes()
    text.decode()
    starts = bounds[:-1][bounds.diff() > 0] - bounds[0]
    if ((block[starts.numpy()] & 0xC0) == 0x80).any() or b"\n" in text or b"\t" in text:
        raise ValueError(f"{name} has a name that is cut or has a tab or line break")
