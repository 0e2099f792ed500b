"""Tokens, scores and gradients against fifty digits, over W that are numerically hard.

The bound is the textbook's: an error is at most a few roundings for each term of a sum, times the condition number
kappa = |S| (1 + tau |W|) of I - tau W, times the size of what is added up. FEW is the one number that is not derived.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import mpmath
import pytest
import torch
from mpmath import mp, mpf
from torch import Tensor

from harmonium.data.triples import Slot
from harmonium.errors import HarmoniumError
from harmonium.kernels import dispatch
from harmonium.model.composition import Composition, find_composition
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Harmony
from laws import random_triples

FEW = 4
DTYPES = [torch.float32, torch.float64]
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@dataclass(frozen=True)
class Case:
    """W as its eigenvalues in a random frame, and what goes with it."""

    eigenvalues: Callable[[float], list[float]]  # given lambda
    faithfulness: float = 2.0
    gap: float = 0.25  # the cap is lambda - gap
    size_of_b: float = 1.0
    askew: float = 0.0  # the free parameter is not symmetric by so much


CASES = {
    "inside the cap": Case(lambda l: [0.5, -0.3, 0.1, 0.0, -1.0]),
    "far outside the cap": Case(lambda l: [50.0, -30.0, 20.0, 10.0, -70.0]),
    "at the cap": Case(lambda l: [l - 0.25, 0.0, 0.0, 0.0, 0.0]),
    "lambda - 1e-3": Case(lambda l: [l - 1e-3, 0.0, 0.0, 0.0, 0.0], gap=1e-3),
    "lambda - 1e-6": Case(lambda l: [l - 1e-6, 0.0, 0.0, 0.0, 0.0], gap=1e-6),
    "capped at lambda - 1e-6": Case(lambda l: [3 * l, -l, 0.0, 0.0, l], gap=1e-6),
    "zero": Case(lambda l: [0.0] * 5),
    "negative": Case(lambda l: [-l / 3, -l / 4, -0.1, -1e-8, -0.2]),
    "rank one": Case(lambda l: [1.0, 0.0, 0.0, 0.0, 0.0]),
    "repeated": Case(lambda l: [0.7, 0.7, 0.7, -0.7, -0.7]),
    "huge b": Case(lambda l: [0.5, -0.3, 0.1, 0.0, -1.0], size_of_b=1e6),
    "huger b": Case(lambda l: [l - 0.25, 0.0, 0.0, 0.0, 0.0], size_of_b=1e12),
    "tiny lambda": Case(lambda l: [l / 2, -l, 0.0, l / 3, 0.0], faithfulness=1e-6, gap=0.5e-6),
    "large lambda": Case(lambda l: [l, -l / 2, 0.0, 1.0, 0.0], faithfulness=1e6, gap=1e5),
    "infinite lambda": Case(lambda l: [1.0, -0.5, 3.0, 0.0, 0.0], faithfulness=math.inf, gap=0.0),
    "one dimension": Case(lambda l: [l - 1e-3], gap=1e-3),
    "not symmetric": Case(lambda l: [0.5, -0.3, 0.1, 0.0, -1.0], askew=3.0),
}


def harmony_of(case: Case, dtype: torch.dtype, device: str, **options) -> Harmony:
    generator, values = torch.Generator().manual_seed(5), case.eigenvalues(case.faithfulness)
    values, dim = torch.tensor(values, dtype=torch.float64), len(values)
    frame = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64))[0]
    skew = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    cap = None if math.isinf(case.faithfulness) else case.faithfulness - case.gap
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        harmony = Harmony(dim, case.faithfulness, cap=cap, **options).to(device)
    finally:
        torch.set_default_dtype(before)
    with torch.no_grad():
        free = frame @ torch.diag(values) @ frame.T + case.askew * (skew - skew.T)
        if harmony.basis is not None:
            turn = frame[:, : harmony.basis.shape[1]]
            free = turn.T @ free @ turn
            harmony.basis.copy_(turn + 0.3 * torch.randn(turn.shape, generator=generator))
        harmony.free.copy_(free)
        harmony.bias.copy_(case.size_of_b * torch.randn(dim, generator=generator, dtype=torch.float64))
    return harmony


def digits(tensor: Tensor) -> mpmath.matrix:
    """The exact numbers of a tensor, to be computed with in fifty digits."""
    rows = tensor.detach().double().cpu()
    return mp.matrix((rows if rows.dim() == 2 else rows[:, None]).tolist())


def numbers(matrix: mpmath.matrix) -> Tensor:
    return torch.tensor([[float(x) for x in row] for row in matrix.tolist()], dtype=torch.float64).squeeze(-1)


def norm(matrix: mpmath.matrix) -> mpf:
    return mp.sqrt(sum(x * x for x in matrix))


def largest(symmetric: mpmath.matrix) -> mpf:
    return max(abs(x) for x in mp.eigsy(symmetric, eigvals_only=True))


class Exact:
    """The definition in fifty digits: W, tokens, scores, and the gradients of a score."""

    def __init__(self, harmony: Harmony) -> None:
        self.harmony, self.b, free = harmony, digits(harmony.bias), digits(harmony.free)
        self.basis = mp.eye(harmony.dim) if harmony.basis is None else digits(harmony.basis)
        w = self.basis * ((free + free.T) / 2) * self.basis.T
        size = norm(w) if harmony.constraint == "frobenius" else largest(w)
        self.w = w * min(mpf(1), mpf(harmony.cap) / size) if size else w
        self.tau = mpf(0) if math.isinf(harmony.faithfulness) else 1 / mpf(harmony.faithfulness)
        room = mp.eye(harmony.dim) - self.tau * self.w
        self.spread, self.stretch = room**-1, 1 / min(mp.eigsy(room, eigvals_only=True))
        self.kappa = self.stretch * (1 + self.tau * largest(self.w))  # what rounding I - tau W does

    def token(self, x: mpmath.matrix) -> mpmath.matrix:
        return self.spread * (x + self.tau * self.b / 2)

    def score(self, x: mpmath.matrix) -> mpf:
        h = self.token(x)
        faithful = (h - x).T * (h - x) / self.tau if self.tau else mp.matrix([0])
        return ((h.T * self.w * h + self.b.T * h - faithful) / 2)[0]

    @property
    def rounding(self) -> float:
        """The relative error that a product with S may have."""
        terms, eps = self.harmony.dim + 3, torch.finfo(self.harmony.bias.dtype).eps
        low_rank = mpf(1)
        if self.harmony.basis is not None:  # F'F C is not symmetric, and F C F' may cancel
            values = mp.eigsy(self.basis.T * self.basis, eigvals_only=True)
            low_rank = max(values) / min(values)
        return float(FEW * terms * eps * self.kappa * low_rank)


def sizes(exact: Exact, x: mpmath.matrix) -> tuple[float, float]:
    """What is added up in a token, and in a score."""
    moved = norm(x) + exact.tau * norm(exact.b) / 2
    score = exact.stretch * (largest(exact.w) * norm(x) ** 2 + norm(exact.b) * moved)
    return float(exact.stretch * moved), float(score)


def within(actual: Tensor, wanted: Tensor, bound: float, what: str) -> None:
    error = torch.linalg.vector_norm((actual.detach().double().cpu() - wanted).flatten()).item()
    assert error <= bound, f"{what}: error {error:.3g}, bound {bound:.3g}"


@pytest.fixture(autouse=True)
def fifty_digits() -> Iterator[None]:
    with mp.workdps(50):
        yield


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("options", [{}, {"constraint": "spectral"}, {"rank": 2}], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_the_closed_form_is_right_to_its_condition(name: str, options: dict, dtype: torch.dtype, device: str) -> None:
    case = CASES[name]
    if options.get("rank", 1) > len(case.eigenvalues(1.0)):
        options = {"rank": 1}
    if dtype is torch.float32 and case.gap == 1e-6:
        with pytest.raises(HarmoniumError, match=r"too near to faithfulness \(lambda\) = 2.0.*Lower the cap, to 1.98"):
            harmony_of(case, dtype, device, **options)
        return
    harmony = harmony_of(case, dtype, device, **options)
    exact = Exact(harmony)
    composed = torch.randn(2, harmony.dim, generator=torch.Generator().manual_seed(1), dtype=dtype)
    composed = composed.to(device).requires_grad_()
    eps, form, tokens = exact.rounding, harmony.fold(), harmony.optimise(composed)
    scores = form(composed)
    within(harmony.matrix(), numbers(exact.w), eps * float(norm(exact.w)), "W")
    assert torch.equal(harmony.core(), harmony.core().T)
    room = float(harmony.faithfulness - harmony.cap) / 2
    assert harmony.norm() <= harmony.cap + min(room, harmony.cap * eps), "W is outside its cap"
    for row, vector in enumerate(composed):
        x = digits(vector)
        token, score = sizes(exact, x)
        within(tokens[row], numbers(exact.token(x)), eps * token, "token")
        within(scores[row], torch.tensor(float(exact.score(x)), dtype=torch.float64), eps * score, "score")
        at_token = exact.kappa * (largest(exact.w) + (1 / exact.tau if exact.tau else 0)) * token**2
        within(harmony(tokens, composed)[row], scores[row].double().cpu(), eps * float(at_token + score), "H(mu, x)")
        gradients = torch.autograd.grad(scores[row], [composed, harmony.bias], retain_graph=True)
        h = exact.token(x)
        pull = float(exact.stretch * (largest(exact.w) * norm(x) + norm(exact.b)))
        within(gradients[0][row], numbers(exact.w * h + exact.b / 2), eps * pull, "gradient of x")
        within(gradients[1], numbers(h / 2), eps * token, "gradient of b")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("constraint", ["frobenius", "spectral"])
@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.gap > 1e-6 and n not in ("repeated", "zero")])
def test_the_gradient_of_w_is_half_the_square_of_the_token(name: str, constraint: str, dtype: torch.dtype) -> None:
    """dH/dW = mu mu'/2, as H is at its maximum in mu; within the cap it is the parameter's, outside its part across W."""
    harmony = harmony_of(CASES[name], dtype, "cpu", constraint=constraint)
    exact, composed = Exact(harmony), torch.randn(harmony.dim, generator=torch.Generator().manual_seed(1), dtype=dtype)
    (gradient,) = torch.autograd.grad(harmony.fold()(composed), harmony.free)
    h, (token, _) = exact.token(digits(composed)), sizes(exact, digits(composed))
    wanted, free = h * h.T / 2, digits(harmony.free)
    symmetric = (free + free.T) / 2
    size = norm(symmetric) if constraint == "frobenius" else largest(symmetric)
    bound = exact.rounding * token**2
    if size == harmony.cap or abs(size / harmony.cap - 1) < FEW * harmony.dim * torch.finfo(dtype).eps:
        return  # at the edge both are right
    if size > harmony.cap:
        if constraint == "frobenius":
            direction = symmetric / size
        else:
            values, vectors = mp.eigsy(symmetric)
            top = max(range(len(values)), key=lambda k: abs(values[k]))
            direction = mp.sign(values[top]) * vectors[:, top] * vectors[:, top].T
            apart = min([abs(abs(values[top]) - abs(values[k])) for k in range(len(values)) if k != top], default=size)
            bound *= 1 + float(size / apart)
        along = sum(a * b for a, b in zip(wanted, symmetric, strict=True))
        wanted = (wanted - along * direction / size) * harmony.cap / size
    within(gradient, numbers(wanted) if harmony.dim > 1 else numbers(wanted)[:, None], bound, "gradient of W")


@pytest.mark.parametrize("faithfulness", [0.3, 1.0, 50.0, math.inf])
@pytest.mark.parametrize("name", sorted(Composition.registry))
def test_scores_of_all_candidates_are_right_to_their_size(name: str, faithfulness: float) -> None:
    """float32 against the definition in float64, with the same form, in every slot and by every formula of the backend."""
    composition = find_composition(name)
    dim = composition.dim(4, composition.relation_dim(4))
    cap = None if math.isinf(faithfulness) else 0.9 * faithfulness
    model = GradientGraph(composition, 30, 3, 4, Harmony(dim, faithfulness, cap=cap)).initialise("paper")
    with torch.no_grad():
        model.form.free.mul_(100)
        queries, form = random_triples(model), model.scorer().form.double()
        exact = replace(copy.deepcopy(model).double().scorer(), form=form)  # folded in float32, scored in float64
        for slot in Slot:
            slot_map, longest = exact.slot_map(slot, queries), exact.candidates(slot).norm(dim=1).max()
            reach = torch.linalg.matrix_norm(slot_map.dense(), ord=2) * longest + slot_map.offset.norm(dim=-1)  # >= |x|
            size = torch.linalg.matrix_norm(form.matrix, ord=2) * reach**2 + form.vector.norm() * reach
            with dispatch.use("reference"):
                wanted = exact.score_slot(slot, queries)
            error = (model.scorer().score_slot(slot, queries) - wanted).abs().amax(1)
            assert (error <= FEW * (dim + 3) * torch.finfo(torch.float32).eps * size).all()
