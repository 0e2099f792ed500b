"""L-BFGS finds minima that are known in closed form."""

from __future__ import annotations

import pytest
import torch

from harmonium.kernels.lbfgs import minimise


def test_the_minimum_of_a_quadratic_loss_of_several_parameters() -> None:
    matrix = torch.tensor([[3.0, 1.0], [1.0, 2.0]]).double()
    start = torch.zeros(2).double(), torch.tensor(5.0).double()

    def loss(vector: torch.Tensor, scalar: torch.Tensor) -> torch.Tensor:
        return vector @ matrix @ vector / 2 - vector.sum() + (scalar - 1) ** 2

    with torch.no_grad():
        vector, scalar = minimise(loss, start, 50)
    torch.testing.assert_close(vector, torch.linalg.solve(matrix, torch.ones(2).double()))
    assert scalar.item() == pytest.approx(1)
    assert start[0].tolist() == [0, 0] and not vector.requires_grad
