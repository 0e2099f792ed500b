"""Tensors out in parts, and in by a map."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch

from graph_checks import memory_growth
from harmonium.runtime import storage, tensor_file

TENSORS = {
    "one": torch.arange(7, dtype=torch.int16), "table": torch.randn(5, 3), "flag": torch.tensor([True, False]),
    "scalar": torch.tensor(2.5, dtype=torch.float64), "none": torch.empty(0, 4), "half": torch.ones(3, dtype=torch.bfloat16),
    "turned": torch.arange(6.0).view(2, 3).T, "grad": torch.ones(2, requires_grad=True),
    "b": torch.ones(9, dtype=torch.uint8), "single": torch.arange(9).view(3, 3)[:1, 1],
}  # fmt: skip


def same(tensors: dict, expected: dict) -> None:
    assert tensors.keys() == expected.keys()
    for name, tensor in expected.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor.detach())


@pytest.mark.parametrize("mapped", [0, 1 << 30])
@pytest.mark.parametrize("part", [1, 8, 1 << 20])
def test_tensors_come_back_and_others_can_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapped: int, part: int
) -> None:
    monkeypatch.setattr(tensor_file, "MIN_MAPPED_BYTES", mapped)
    monkeypatch.setattr(tensor_file, "BYTES_PER_PART", part)
    file = tmp_path / "file.safetensors"
    record = storage.write(file, tensor_file.parts(TENSORS, {"who": "Zoë"}))
    assert record == storage.FileRecord(file.stat().st_size, storage.digest(file.read_bytes()))
    tensors, metadata = tensor_file.read(file)
    assert metadata == {"who": "Zoë"}
    same(tensors, TENSORS)
    same(safetensors.torch.load_file(file), TENSORS)
    turned = dict(reversed(TENSORS.items()))
    assert b"".join(map(bytes, tensor_file.parts(turned, {"who": "Zoë"}))) == file.read_bytes()


def test_what_safetensors_writes_is_read(tmp_path: Path) -> None:
    plain = {name: tensor.detach().contiguous() for name, tensor in TENSORS.items()}
    safetensors.torch.save_file(plain, tmp_path / "other")
    same(tensor_file.read(tmp_path / "other")[0], TENSORS)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells")
def test_a_large_file_costs_no_memory_and_is_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, size = tmp_path / "large", 1 << 26
    storage.write(file, tensor_file.parts({"a": torch.zeros(size // 4), "b": torch.ones(2)}))
    preparation = f"""
from harmonium.runtime import tensor_file
file = Path({str(file)!r})
tensor_file.read(file)[0]["b"].sum()  # what is imported, and the threads that are started, on first use
"""
    statements = 'tensors, _ = tensor_file.read(file)\nassert tensors["a"].sum() == 0'
    assert memory_growth(preparation, statements) < size / 8
    checksum, (tensors, _) = storage.digest(file.read_bytes()), tensor_file.read(file)
    assert tensors["a"].data_ptr() % 64 == 0
    monkeypatch.setattr(tensor_file, "MIN_MAPPED_BYTES", 1 << 30)
    copy, _ = tensor_file.read(file)
    tensors["a"][:] = 7  # as training does
    assert copy["a"].sum() == 0
    assert storage.digest(file.read_bytes()) == checksum


def test_a_part_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    def parts():
        yield b"first"
        raise RuntimeError("no memory on the device")

    with pytest.raises(RuntimeError):
        storage.write(tmp_path / "file", parts())
    assert list(tmp_path.iterdir()) == []
