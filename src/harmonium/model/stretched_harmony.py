"""A harmony for a plain model: W along b, which stretches tokens along the score and leaves scores as they are.

S = (I - W / lambda)^-1 depends on W / lambda alone, the quadratic part A = W S / 2 of the score on W. With W = w u u',
u = c / |c| the direction of the plain model's score c'x, and w = lambda (1 - 1 / stretch), S multiplies the coordinate
along u by `stretch` and keeps all others; a small lambda makes A as small as one likes. Composed vectors of true facts
have large coordinates along u: in tokens these count for more, so that what plays the same role comes nearer.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from harmonium.config.settings import ModelConfig
from harmonium.data.triples import Triples
from harmonium.errors import HarmoniumError
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Harmony, default_cap

SCORE_TOLERANCE = 1e-3  # largest change of a score, as a fraction of the largest score
SCORED_FACTS = 10_000  # of which the largest score is known


@torch.no_grad()
def stretched_harmony(vector: Tensor, stretch: float, largest_score: float) -> Harmony:
    """The Harmony whose scores are c'x for c = `vector` (dim,), up to the tolerance for |c'x| <= largest_score.

    With u = c / |c|: A = a u u' with a = lambda (stretch - 1) / 2, and x'Ax = a (c'x)^2 / |c|^2. Scores z = c'x become
    z + SCORE_TOLERANCE z^2 / largest_score, in the same order as long as |z| is below 500 times the largest.
    """
    length = float(vector.double().norm())
    if not stretch > 1 or not largest_score > 0 or not length > 0:
        raise HarmoniumError(
            f"tokens are stretched by a factor above 1 along a score that is not zero, not by {stretch:g} along one of "
            f"length {length:g} with scores up to {largest_score:g}"
        )
    faithfulness = SCORE_TOLERANCE * 2 * length**2 / ((stretch - 1) * largest_score)
    weight = faithfulness * (1 - 1 / stretch)
    form = Harmony(len(vector), faithfulness, cap=(weight + faithfulness) / 2, rank=1).to(vector)
    assert form.basis is not None, "a Harmony with a rank has a basis"
    form.basis.copy_((vector / length)[:, None])
    form.free.fill_(weight)
    form.bias.copy_(2 * vector / stretch)  # c = S b / 2
    return form


@torch.no_grad()
def stretch_tokens(model: GradientGraph, facts: Triples, settings: ModelConfig) -> tuple[Harmony, ModelConfig]:
    """The stretched harmony of a plain model, and the settings that build it.

    lambda and the cap of the settings give the stretch, 1 / (1 - cap / lambda): 4 by default, as in the paper.
    """
    if math.isinf(settings.faithfulness):
        raise HarmoniumError(
            "with model.faithfulness=inf tokens are composed vectors; choose a finite one to stretch them"
        )
    cap = default_cap(settings.faithfulness) if settings.cap is None else settings.cap
    vector = model.form.fold().vector
    largest = float(model.score(facts[:SCORED_FACTS].to(vector.device)).abs().max())
    form = stretched_harmony(vector, 1 / (1 - cap / settings.faithfulness), largest)
    return form, replace(settings, harmony=True, faithfulness=form.faithfulness, cap=form.cap, rank=1)
