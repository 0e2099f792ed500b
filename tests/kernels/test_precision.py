"""Operands of matrix products are rounded where they may be and the hardware gains by it."""

from __future__ import annotations

import math

import pytest
import torch

import harmonium
from harmonium.kernels import precision
from harmonium.kernels.precision import matmul_precision, operand_dtype
from small import family


def test_operands_are_rounded_where_allowed_and_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "has_bfloat16", lambda: True)
    table = torch.ones(2, 2)
    assert operand_dtype(table) == torch.float32
    with matmul_precision("high"):
        assert operand_dtype(table) == torch.bfloat16
        assert operand_dtype(table.double()) == torch.float64
        monkeypatch.setattr(precision, "has_bfloat16", lambda: False)
        assert operand_dtype(table) == torch.float32
    assert torch.get_float32_matmul_precision() == "highest"


def test_training_can_ask_for_the_highest_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    def final_loss(setting: str, has_bfloat16: bool) -> float:
        monkeypatch.setattr(precision, "has_bfloat16", lambda: has_bfloat16)
        overrides = ["model.entity_dim=8", "train.epochs=2", "train.device=cpu", f"train.precision={setting}"]
        return harmonium.train(family(), "paper", overrides=overrides).history.rows[-1]["loss"]

    rounded, exact, unsupported = final_loss("high", True), final_loss("highest", True), final_loss("highest", False)
    assert exact == unsupported != rounded
    assert math.isclose(rounded, exact, rel_tol=0.01)
