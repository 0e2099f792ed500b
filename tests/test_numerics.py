"""Tokens, scores and gradients against fifty digits, over W that a computer finds hard; ranks under rounding.

The bound is the textbook's: an error is at most a few roundings for each term of a sum, times the condition number
kappa = |S| (1 + tau |W|) of I - tau W, times the size of what is added up. FEW is the one number that is not derived.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import mpmath
import pytest
import torch
from mpmath import mp, mpf
from torch import Tensor

from harmonium import kernels
from harmonium.composition import Composition, find_composition
from harmonium.config import Config, ModelConfig, TrainConfig
from harmonium.errors import HarmoniumError
from harmonium.evaluation import evaluate, rank
from harmonium.gaps import Blurred, measure_gaps
from harmonium.graph import Graph, Slot, Triples
from harmonium.harmony import Harmony
from harmonium.model import GradientGraph
from harmonium.training import build_model, fit
from laws import random_triples
from small import make_graph

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
    """The numbers of a tensor as they are, to be computed with in fifty digits."""
    rows = tensor.detach().double().cpu()
    return mp.matrix((rows if rows.dim() == 2 else rows[:, None]).tolist())


def numbers(matrix: mpmath.matrix) -> Tensor:
    return torch.tensor([[float(x) for x in row] for row in matrix.tolist()], dtype=torch.float64).squeeze(-1)


def norm(matrix: mpmath.matrix) -> mpf:
    return mp.sqrt(sum(x * x for x in matrix))


def largest(symmetric: mpmath.matrix) -> mpf:
    return max(abs(x) for x in mp.eigsy(symmetric, eigvals_only=True))


@dataclass(frozen=True)
class Exact:
    """The definition in fifty digits: W, tokens, scores, and the gradients of a score."""

    harmony: Harmony

    def __post_init__(self) -> None:
        harmony = self.harmony
        free, b = digits(harmony.free), digits(harmony.bias)
        basis = mp.eye(harmony.dim) if harmony.basis is None else digits(harmony.basis)
        w = basis * ((free + free.T) / 2) * basis.T
        size = norm(w) if harmony.constraint == "frobenius" else largest(w)
        shrink = min(mpf(1), mpf(harmony.cap) / size) if size else mpf(1)
        tau = mpf(0) if math.isinf(harmony.faithfulness) else 1 / mpf(harmony.faithfulness)
        room = mp.eye(harmony.dim) - tau * shrink * w
        stretch = 1 / min(mp.eigsy(room, eigvals_only=True))
        parts = {"w": shrink * w, "b": b, "tau": tau, "spread": room**-1, "basis": basis, "core": shrink * free}
        parts |= {
            "stretch": stretch,
            "kappa": stretch * (1 + tau * largest(shrink * w)),
        }  # what rounding I - tau W does
        for name, value in parts.items():
            object.__setattr__(self, name, value)

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


def within(found: Tensor, wanted: Tensor, bound: float, what: str) -> None:
    error = torch.linalg.vector_norm((found.detach().double().cpu() - wanted).flatten()).item()
    assert error <= bound, f"{what}: error {error:.3g}, bound {bound:.3g}"


@pytest.fixture(autouse=True)
def fifty_digits():
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
    exact, composed = (
        Exact(harmony),
        torch.randn(2, harmony.dim, generator=torch.Generator().manual_seed(1), dtype=dtype),
    )
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
    (found,) = torch.autograd.grad(harmony.fold()(composed), harmony.free)
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
    within(found, numbers(wanted) if harmony.dim > 1 else numbers(wanted)[:, None], bound, "gradient of W")


@pytest.mark.parametrize("faithfulness", [0.3, 1.0, 50.0, math.inf])
@pytest.mark.parametrize("name", sorted(Composition.registry))
def test_scores_of_all_candidates_are_right_to_their_size(name: str, faithfulness: float) -> None:
    """float32 against the definition in float64, with the same form, in every slot: linear, squared heads, pulled back."""
    composition = find_composition(name)
    dim = composition.dim(4, composition.relation_dim(4))
    cap = None if math.isinf(faithfulness) else 0.9 * faithfulness
    model = GradientGraph(composition, 30, 3, 4, Harmony(dim, faithfulness, cap=cap)).initialise("paper")
    with torch.no_grad():
        model.form.free.mul_(100)
        queries, form = random_triples(model), model.snapshot().form.double()
        exact = replace(copy.deepcopy(model).double().snapshot(), form=form)  # folded in float32, scored in float64
        for slot in Slot:
            slot_map, longest = exact.slot_map(slot, queries), exact.candidates(slot).norm(dim=1).max()
            reach = torch.linalg.matrix_norm(slot_map.dense(), ord=2) * longest + slot_map.offset.norm(dim=-1)  # >= |x|
            size = torch.linalg.matrix_norm(form.matrix, ord=2) * reach**2 + form.vector.norm() * reach
            with kernels.use("reference"):
                wanted = exact.score_slot(slot, queries)
            error = (model.snapshot().score_slot(slot, queries) - wanted).abs().amax(1)
            assert (error <= FEW * (dim + 3) * torch.finfo(torch.float32).eps * size).all()


def test_a_cap_without_room_is_refused_and_the_next_best_holds() -> None:
    with pytest.raises(HarmoniumError, match="the cap on W, 0.99999, is too near"):
        Harmony(3, 1.0, cap=0.99999)
    tight = Harmony(64, 1.0, cap=0.9999)
    with torch.no_grad():
        tight.free.copy_(torch.ones(64, 64))
    exact = torch.linalg.inv(torch.eye(64, dtype=torch.float64) - tight.cap * torch.full((64, 64), 1 / 64).double())
    assert (tight.token_map() - exact).norm() / exact.norm() < 0.02
    with pytest.raises(HarmoniumError, match="too near"):
        Harmony(3, 1e6)  # the default cap, lambda - 0.25


# Ranks -----------------------------------------------------------------------------------------------------------


def trained(composition: str, **options) -> tuple[Graph, GradientGraph]:
    graph = make_graph(n_entities=300, sizes=(600, 10, 30))
    config = Config(
        model=ModelConfig(composition, 12, **options), train=TrainConfig(epochs=2, negatives=16, device="cpu")
    )
    model = build_model(config.model, graph.n_entities, graph.n_relations)
    fit(model, graph, config)
    return graph, model


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("composition", "options"),
    [
        ("hole", {}),
        ("hole", {"rank": 3}),
        ("distmult", {"faithfulness": math.inf}),
        ("complex", {"harmony": False, "reciprocal": True}),
        ("concatenation", {"rank": 2}),
    ],
)
def test_ranks_are_the_same_however_computed_where_rounding_leaves_no_doubt(composition: str, options: dict) -> None:
    graph, model = trained(composition, **options)
    with torch.no_grad():
        model.entity[::2] = model.entity[1::2] * (1 + 1e-7 * torch.randn(150, 12))  # twins, but for the last digit
    exact = copy.deepcopy(model).double()
    with kernels.use("reference"):
        wanted = evaluate(exact, graph).ranks
    blurred = evaluate(Blurred(model, exact), graph).ranks
    certain = blurred.tied == 0
    assert certain.any()
    assert not certain.all()
    for device in DEVICES:
        for chunk in (5, None):
            for count in (1, 2):
                with threads(count):
                    found = evaluate(copy.deepcopy(model).to(device), graph, chunk=chunk, device=device).ranks
                assert found.values()[certain].equal(wanted.values()[certain])
                assert (found.values("optimistic") >= blurred.values("optimistic")).all()
                assert (found.values("pessimistic") <= blurred.values("pessimistic")).all()


def test_a_planted_near_tie_is_told() -> None:
    graph, model = trained("hole")
    exact = copy.deepcopy(model).double()
    before = measure_gaps(model, exact, graph, facts=len(graph.test))
    truth = int(graph.test.tail[0])
    with torch.no_grad():
        twin = next(e for e in range(300) if e != truth and e not in graph.test.tail.tolist())
        model.entity[twin] = model.entity[truth] * (1 + 1e-7)
        exact.load_state_dict(model.state_dict())
    after = measure_gaps(model, exact, graph, facts=len(graph.test))
    assert after.queries == before.queries == 60
    assert after.uncertain > before.uncertain
    assert after.most >= 1
    low, high = after.metrics["mrr"]
    assert low < evaluate(model, graph).metrics["mrr"] < high


def test_scores_apart_by_more_than_rounding_are_certain() -> None:
    class Table:
        def score_slot(self, slot: Slot, queries: Triples) -> Tensor:
            return torch.tensor([[0.0, 1.0, 1.0 + 3e-7, 2.0]]).expand(len(queries), 4).to(self.dtype)

    narrow, wide = Table(), Table()
    narrow.dtype, wide.dtype = torch.bfloat16, torch.float64  # whose error here is 3e-7
    facts = Triples.from_rows([[1, 0, 0], [2, 0, 3]])
    found = rank(Blurred(narrow, wide), facts, Slot.HEAD)
    assert found.better.tolist() == [1, 1]
    assert found.tied.tolist() == [1, 1]
    assert rank(Blurred(wide, wide), facts, Slot.HEAD).better.tolist() == [2, 1]
