"""N3's sum of cubed magnitudes, and its gradient, against plain PyTorch."""

import pytest
import torch

from harmonium.kernels.sum_of_cubes import sum_of_cubes


@pytest.mark.parametrize("parts, d", [(1, 5), (2, 6), (4, 8)])
def test_value_and_gradient(parts: int, d: int) -> None:
    vectors = torch.randn(7, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    magnitude = torch.stack(vectors.chunk(parts, dim=1)).square().sum(0).sqrt()
    torch.testing.assert_close(sum_of_cubes(vectors, parts), magnitude.pow(3).sum())
    assert torch.autograd.gradcheck(lambda rows: sum_of_cubes(rows, parts), vectors)


def test_a_zero_vector_has_a_zero_gradient() -> None:
    vectors = torch.zeros(2, 4, requires_grad=True)
    sum_of_cubes(vectors, 2).backward()
    assert not vectors.grad.any()
