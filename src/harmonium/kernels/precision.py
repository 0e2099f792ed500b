"""Precision of matrix products: in training operands may be rounded, since gradients are noisier than that."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Products inside the block: "highest" is exact, "high" may round operands to TF32 or bfloat16. Sums are float32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def may_round() -> bool:
    return torch.get_float32_matmul_precision() != "highest"


@cache
def has_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 matrices in hardware."""
    if not hasattr(torch.cpu, "get_capabilities"):
        return False
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def operand_dtype(table: Tensor) -> torch.dtype:
    """The dtype for operands of a plain PyTorch product: bfloat16 if rounding is allowed and faster, else unchanged."""
    rounded = may_round() and table.dtype == torch.float32 and not table.is_cuda and has_bfloat16()
    return torch.bfloat16 if rounded else table.dtype
