"""Harmony: the energy of a hidden state h given a composed vector x, its optimum, and its value there.

    H(h, x) = 1/2 [ h'Wh + b'h - lambda |h - x|^2 ],   W symmetric, lambda above its largest eigenvalue

`faithfulness` is lambda. Everything is written with tau = 1/lambda, so that lambda = infinity is tau = 0 with no
special case: S = (I - tau W)^-1 maps composed vectors to tokens. Symbols and proofs: docs/math.md.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from harmonium.errors import HarmoniumError
from harmonium.kernels.quadratic_form import QuadraticForm, embed, orthonormalise
from harmonium.kernels.resolvent import resolvent
from harmonium.model.dropout import dropout_mask

MARGIN = 0.25  # the paper's epsilon: how far the cap on W stays below lambda
CAP_AT_INFINITY = 2.5  # the paper's cap when lambda is infinite
CONSTRAINTS = ("frobenius", "spectral")
MIN_ROOM = 200  # lambda - cap is at least so many roundings of lambda: tokens keep two digits
MAX_FULL_DIM = 10_000  # dimensions that a full W may have: 400 MB, and three times that to train it


@dataclass(frozen=True)
class Trajectory:
    """The hidden state and its harmony along the dynamics."""

    hidden: Tensor  # (steps + 1, ..., dim)
    harmony: Tensor  # (steps + 1, ...)


class Sum(nn.Module):
    """The plain models: score = scale * sum of x, the form with no matrix."""

    is_capturable = True

    def __init__(self, dim: int, learn_scale: bool = True) -> None:
        super().__init__()
        self.dim = dim
        self.scale = nn.Parameter(torch.ones(()), requires_grad=learn_scale)

    def fold(self) -> QuadraticForm:
        return QuadraticForm(None, self.scale.expand(self.dim), self.scale.new_zeros(()))

    @torch.no_grad()
    def calibrate(self, composed: Tensor) -> None:
        """Start with scores of unit spread over the given composed vectors."""
        if self.scale.requires_grad:
            self.scale.copy_(1 / composed.sum(-1).std().clamp(min=1e-12))

    @torch.no_grad()
    def start_as_sum(self) -> None:
        """Start with the sum of x as the score."""
        self.scale.fill_(1)


class Harmony(nn.Module):
    """W, b and the faithfulness lambda.

    W = F C F' with C the symmetric part of a free matrix, scaled down when the norm of W (Frobenius, as in the paper,
    or spectral) exceeds `cap` (default: the paper's); cap < lambda makes the optimum exist. Without a `rank` F is the
    identity and W any symmetric matrix; a small rank scores far faster.
    `dropout` is the share of C's entries that are zero inside `dropping`, in training.
    """

    def __init__(
        self,
        dim: int,
        faithfulness: float = 1.0,
        constraint: str = "frobenius",
        cap: float | None = None,
        rank: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        cap = default_cap(faithfulness) if cap is None else cap
        _check_settings(dim, faithfulness, constraint, cap, rank, dropout)
        self.dim, self.faithfulness, self.constraint, self.cap = dim, faithfulness, constraint, cap
        self.dropout = dropout
        self.mask: Tensor | None = None  # on C, inside `dropping`
        self.free = nn.Parameter(torch.empty(rank or dim, rank or dim))
        self.basis = nn.Parameter(torch.empty(dim, rank)) if rank else None
        self.bias = nn.Parameter(torch.empty(dim))
        self.initialise()

    @torch.no_grad()
    def initialise(self, generator: torch.Generator | None = None, is_xavier: bool = False) -> None:
        """Small and random; or uniform by Xavier, where W starts at its cap: |W|_F would be sqrt(dim / 2)."""
        if is_xavier:
            self.free.uniform_(-(limit := xavier_limit(*self.free.shape)), limit, generator=generator)
            self.bias.uniform_(-(limit := xavier_limit(self.dim, self.dim)), limit, generator=generator)
        else:
            self.free.normal_(generator=generator).div_(len(self.free))
            self.bias.normal_(generator=generator).div_(math.sqrt(self.dim))
        if self.basis is not None:
            self.basis.copy_(torch.linalg.qr(self.basis.normal_(generator=generator))[0])

    @torch.no_grad()
    def calibrate(self, composed: Tensor) -> None:
        """Start with scores of unit spread over the given composed vectors and W = cap * b b'/|b|^2.

        b points along the sum of x (the plain model's score). W stretches that direction from the first step, so
        tokens differ from composed vectors at once; b alone would leave W idle (docs/math.md, section 3).
        """
        direction = torch.full_like(self.bias, 1 / math.sqrt(self.dim))
        if self.basis is None:
            self.free.copy_(self.cap * torch.outer(direction, direction))
        else:
            self.basis[:, 0] = direction
            self.basis.copy_(torch.linalg.qr(self.basis)[0])
            self.free.zero_()[0, 0] = self.cap
        stretch = 1 / (1 - self.tau * self.cap)
        self.bias.copy_(direction * 2 / (stretch * (composed @ direction).std().clamp(min=1e-12)))

    @torch.no_grad()
    def start_as_sum(self) -> None:
        """Start as the plain model, with the sum of x as the score: b = 2 and W = 0, however small the vectors are.

        Scores of unit spread would need a huge b for small vectors. W starts at zero since C alone does: F is random, so
        C has a gradient from the first step, and F from the second.
        """
        self.bias.fill_(2)
        self.free.zero_()

    @property
    def tau(self) -> float:
        return 1 / self.faithfulness

    @property
    def is_capturable(self) -> bool:
        """Whether a CUDA graph can record `fold`: eigenvalues, which the spectral constraint needs, cannot be recorded."""
        return self.constraint == "frobenius"

    def core(self) -> Tensor:
        """C (rank, rank): symmetric, and W = F C F' within the cap."""
        symmetric = (self.free + self.free.T) / 2
        if self.mask is not None:
            symmetric = symmetric * self.mask
        norm = _frobenius(symmetric, self.basis) if self.constraint == "frobenius" else _spectral(symmetric, self.basis)
        return symmetric * (self.cap / norm.clamp(min=self.cap))

    @contextmanager
    def dropping(self, generator: torch.Generator | None = None) -> Iterator[None]:
        """Inside the block pairs of C's entries are zero by chance, the rest larger by as much; the cap comes after."""
        kept = dropout_mask(self.free.shape, self.dropout, self.free, generator)
        self.mask = kept.triu() + kept.triu(1).T
        try:
            yield
        finally:
            self.mask = None

    def matrix(self) -> Tensor:
        """W (dim, dim)."""
        return embed(self.core(), self.basis)

    @torch.no_grad()
    def norm(self) -> float:
        """The norm of W that the constraint limits, in float64."""
        core, basis = self.core().double(), None if self.basis is None else self.basis.double()
        order = "fro" if self.constraint == "frobenius" else 2
        return float(torch.linalg.matrix_norm(orthonormalise(core, basis)[1], ord=order))

    def folded_core(self) -> Tensor:
        """N = C (I - tau F'F C)^-1 (rank, rank), so that W S = F N F' and S = I + tau F N F'."""
        core = self.core()
        if self.tau == 0:
            return core
        if self.basis is None:
            return resolvent(core, self.tau, self.tau * self.cap)
        gram_core = self.basis.T @ self.basis @ core
        identity = torch.eye(len(core), dtype=core.dtype, device=core.device)
        # solve_ex does not check for singular matrices, which would wait for a GPU; the cap rules them out
        solved: Tensor = torch.linalg.solve_ex(identity - self.tau * gram_core, core, left=False)[0]
        return (solved + solved.T) / 2

    def token_map(self) -> Tensor:
        """S = (I - tau W)^-1 (dim, dim): tokens differ by S times what composed vectors differ by."""
        identity = torch.eye(self.dim, dtype=self.bias.dtype, device=self.bias.device)
        return identity + self.tau * embed(self.folded_core(), self.basis)

    def forward(self, hidden: Tensor, composed: Tensor) -> Tensor:
        """The definition, H(h, x). At lambda = infinity any h other than x has harmony -infinity."""
        coherence, distance = self.coherence(hidden), (hidden - composed).square().sum(-1)
        if self.tau == 0:
            return torch.where(distance == 0, coherence, -torch.inf)
        return coherence - self.faithfulness * distance / 2

    def coherence(self, hidden: Tensor) -> Tensor:
        """Core harmony, 1/2 [h'Wh + b'h]: what h is worth before faithfulness is counted."""
        return ((hidden @ self.matrix() + self.bias) * hidden).sum(-1) / 2

    def optimise(self, composed: Tensor) -> Tensor:
        """The token mu(x) = S (x + tau b / 2), the maximiser of H(., x)."""
        return (composed + self.tau * self.bias / 2) @ self.token_map()

    def fold(self) -> QuadraticForm:
        """H(mu(x), x) as a quadratic form: A = WS/2, c = Sb/2, k = tau b'Sb/8. No token is needed to score."""
        core = self.folded_core()
        along = self.bias if self.basis is None else self.bias @ self.basis
        pushed = core @ along if self.basis is None else self.basis @ (core @ along)
        vector = (self.bias + self.tau * pushed) / 2
        return QuadraticForm(core / 2, vector, self.tau * (self.bias @ vector) / 4, self.basis)

    def fold_unoptimised(self) -> QuadraticForm:
        """H(x, x) as a quadratic form: what a composed vector scores before it is optimised."""
        return QuadraticForm(self.core() / 2, self.bias / 2, self.bias.new_zeros(()), self.basis)

    def sample(self, composed: Tensor, count: int, generator: torch.Generator | None = None) -> Tensor:
        """(count, ..., dim) states of p(h|x) ~ exp H(h, x): normal, mean mu(x), precision lambda I - W."""
        noise = torch.randn((count, *composed.shape), generator=generator, dtype=composed.dtype, device=composed.device)
        if self.tau == 0:
            return composed.expand_as(noise)
        identity = torch.eye(self.dim, dtype=composed.dtype, device=composed.device)
        root = torch.linalg.cholesky(self.faithfulness * identity - self.matrix())  # lower, precision = root root'
        deviation: Tensor = torch.linalg.solve_triangular(root, noise, upper=False, left=False)
        return self.optimise(composed) + deviation

    def relax(self, composed: Tensor, steps: int = 100, step_size: float | None = None) -> Trajectory:
        """The recurrent network dh/dt = Wh + b/2 + lambda (x - h), by Euler steps from h = x; ends at the token."""
        matrix, hidden, states = self.matrix(), composed, [composed]
        for _ in range(steps):
            if self.tau > 0:
                slope = hidden @ matrix + self.bias / 2 + self.faithfulness * (composed - hidden)
                hidden = hidden + (step_size or 1 / (self.faithfulness + self.cap)) * slope
            states.append(hidden)
        path = torch.stack(states)
        return Trajectory(path, self(path, composed))


def xavier_limit(rows: int, columns: int) -> float:
    """The limit of uniform numbers in a matrix (Glorot & Bengio 2010), whose variance is 2 / (rows + columns)."""
    return math.sqrt(6 / (rows + columns))


def default_cap(faithfulness: float) -> float:
    """The paper's cap on W: lambda - 0.25, or 2.5 at infinity."""
    if not faithfulness > 0:
        raise HarmoniumError(f"faithfulness (lambda) must be positive, not {faithfulness}")
    if math.isinf(faithfulness):
        return CAP_AT_INFINITY
    if faithfulness <= MARGIN:
        raise HarmoniumError(
            f"faithfulness (lambda) = {faithfulness} leaves no room for W: the default cap is "
            f"lambda - {MARGIN}; raise lambda or set a positive cap below it"
        )
    return faithfulness - MARGIN


def _check_settings(
    dim: int, faithfulness: float, constraint: str, cap: float, rank: int | None, dropout: float
) -> None:
    if constraint not in CONSTRAINTS:
        raise HarmoniumError(f"no constraint '{constraint}' on W; there are {', '.join(CONSTRAINTS)}")
    if rank is not None and not 1 <= rank <= dim:
        raise HarmoniumError(f"the rank of W is between 1 and the {dim} dimensions of a composed vector, not {rank}")
    if rank is None and dim > MAX_FULL_DIM:
        raise HarmoniumError(
            f"a full W over {dim:,} dimensions has {dim**2:,} numbers; set model.rank, such as 64, "
            "or choose a smaller model.entity_dim"
        )
    if not 0 <= dropout < 1:
        raise HarmoniumError(f"dropout is a share of W's entries, from 0 to below 1, not {dropout}")
    if not 0 < cap < faithfulness:
        raise HarmoniumError(
            f"faithfulness (lambda) = {faithfulness} must be above the cap on W, {cap}: "
            "otherwise harmony has no maximum. Raise lambda or lower the cap"
        )
    if cap > faithfulness * (1 - MIN_ROOM * torch.finfo(torch.get_default_dtype()).eps):
        raise HarmoniumError(
            f"the cap on W, {cap}, is too near to faithfulness (lambda) = {faithfulness}: rounding alone would move "
            f"tokens by a hundredth and more. Lower the cap, to {0.99 * faithfulness:g} say"
        )


def _frobenius(core: Tensor, basis: Tensor | None) -> Tensor:
    """|F C F'|_F without building it: the square is tr(G C G C) with G = F'F."""
    if basis is None:
        norm: Tensor = torch.linalg.matrix_norm(core)
        return norm
    gram_core = basis.T @ basis @ core
    return (gram_core * gram_core.T).sum().clamp(min=torch.finfo(core.dtype).tiny).sqrt()  # at 0 no gradient, not nan


def _spectral(core: Tensor, basis: Tensor | None) -> Tensor:
    """The largest |eigenvalue| of F C F'. Its gradient is v v', so the eigenvector v needs no gradient."""
    with torch.no_grad():
        orthonormal, reduced = orthonormalise(core, basis)
        values, vectors = torch.linalg.eigh(reduced)
        vector: Tensor = vectors[:, values.abs().argmax()]
        vector = vector if orthonormal is None else orthonormal @ vector
    projected = vector if basis is None else vector @ basis
    return (projected @ core @ projected).abs()
