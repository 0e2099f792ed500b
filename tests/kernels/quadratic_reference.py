"""What `harmonium.kernels.triton_quadratic` computes, in plain PyTorch, and random problems to compare on."""

import torch
from torch import Tensor


def reference_scores(table, query, ids, matrix, group, linear, sign=None) -> Tensor:
    """(B, n): y' M y + linear . e with e = table[ids] and y = query o e, in the type of the arguments."""
    e = table[ids.long()]  # (B, n, d)
    q = query[:, None]
    if sign is None:
        y = q * e
    else:
        (q0, q1), (e0, e1) = q.chunk(2, -1), e.chunk(2, -1)
        real = torch.arange(q0.shape[-1], device=q.device) == 0  # the first pair holds two real numbers
        imaginary = torch.where(real, q1 * e1, (q0 * e1 - q1 * e0) * sign[:, None, None].to(q))
        y = torch.cat([q0 * e0 + torch.where(real, 0, q1) * e1, imaginary], -1)
    quadratic = ((y @ matrix[group.long()]) * y).sum(-1)
    return quadratic + (e @ linear[..., None]).squeeze(-1)


def random_problem(entities, d, batch, n, groups, device="cpu", seed=0) -> dict[str, Tensor]:
    """Arguments of `reference_scores` in fp32, with scores of order one; group is sorted, and may skip numbers."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    square = normal(groups, d, d)
    problem = {
        "table": normal(entities, d),
        "query": normal(batch, d),
        "ids": torch.randint(entities, (batch, n), generator=generator, dtype=torch.int32),
        "matrix": (square + square.mT) / (2 * d),
        "group": torch.randint(groups, (batch,), generator=generator, dtype=torch.int32).sort().values,
        "linear": normal(batch, d) / d**0.5,
    }
    return {name: value.to(device) for name, value in problem.items()}


DIFFERENTIABLE = ("table", "query", "matrix", "linear")


def scores_and_gradients(function, problem, dtype, gs) -> dict[str, Tensor]:
    """{"scores", "table", "query", "matrix", "linear"}: function(**problem in dtype), and gradients for gs (B, n)."""
    leaves = {name: problem[name].detach().to(dtype).requires_grad_() for name in DIFFERENTIABLE}
    scores = function(**{**problem, **leaves})
    scores.backward(gs.to(scores.dtype))
    return {"scores": scores.detach(), **{name: leaf.grad for name, leaf in leaves.items()}}


def relative_errors(results, exact) -> dict[str, float]:
    """Norm of the difference over the norm, for each tensor."""
    return {name: ((results[name].double() - x).norm() / x.norm()).item() for name, x in exact.items()}
