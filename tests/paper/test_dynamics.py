from __future__ import annotations

from pathlib import Path

import pytest
import torch

from harmonium.data.graph import Graph
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Harmony
from harmonium.paper.dynamics import REMAINING_DISTANCE, Dynamics
from harmonium.paper.dynamics import dynamics as dynamics_of
from harmonium.paper.figures import dynamics_figure
from small import make_run, random_model


def simulate(model: GradientGraph, graph: Graph) -> Dynamics:
    return dynamics_of(make_run(graph, model), *graph.names_of(graph.train)[0])


@pytest.mark.parametrize("options", [{}, {"rank": 1}], ids=str)
def test_samples_have_the_mean_and_covariance_of_p(options: dict) -> None:
    """p(h|x) ~ exp H(h, x) is normal with mean mu(x) and precision lambda I - W, the negative Hessian of H."""
    harmony = Harmony(3, 2.0, **options).double()
    harmony.initialise(torch.Generator().manual_seed(0))
    with torch.no_grad():
        harmony.free.mul_(9)
    composed = torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    drawn = harmony.sample(composed, 200_000, torch.Generator().manual_seed(3))
    assert drawn.shape == (200_000, 2, 3)
    torch.testing.assert_close(drawn.mean(0), harmony.optimise(composed), rtol=0, atol=0.01)
    for i in range(2):
        hessian = torch.autograd.functional.hessian(lambda h, i=i: harmony(h, composed[i]), composed[i])
        torch.testing.assert_close(drawn[:, i].T.cov(), torch.linalg.inv(-hessian), rtol=0.02, atol=0.01)
    assert drawn[:, 0].T.corrcoef().triu(1).abs().max() > 0.2  # W is not diagonal, and it shows
    again = harmony.sample(composed, 200_000, torch.Generator().manual_seed(3))
    assert torch.equal(drawn, again)


@pytest.mark.parametrize("faithfulness", [0.6, 1.0, 20.0])
def test_the_path_rises_to_the_closed_form(graph: Graph, faithfulness: float) -> None:
    model = random_model(graph, faithfulness=faithfulness)
    found = simulate(model, graph)
    harmony, composed = model.harmony.double(), model.compose(graph.train[:1])[0].double()
    torch.testing.assert_close(found.hidden[0], composed)
    torch.testing.assert_close(found.token, harmony.optimise(composed))
    assert found.optimum == pytest.approx(harmony(found.token, composed).item())
    torch.testing.assert_close(found.harmony, harmony(found.hidden, composed))
    torch.testing.assert_close(found.coherence, harmony.coherence(found.hidden))
    assert (found.harmony.diff() >= -1e-9 * abs(found.optimum)).all()
    assert found.harmony[0] < found.harmony[-1] <= found.optimum * (1 + 1e-9)
    assert found.distance[-1] <= 2 * REMAINING_DISTANCE * found.distance[0]
    assert (
        found.distance[len(found.hidden) // 2] > REMAINING_DISTANCE * found.distance[0]
    )  # no more steps than it takes
    torch.testing.assert_close(found.sample_harmony, harmony(found.samples, composed))


def test_the_plane_contains_the_path_and_the_widest_direction_across(graph: Graph) -> None:
    model = random_model(graph)
    found = simulate(model, graph)
    torch.testing.assert_close(found.plane.T @ found.plane, torch.eye(2, dtype=torch.float64))
    way = found.token - found.hidden[0]
    torch.testing.assert_close(way @ found.plane[:, 0], way.norm())
    spread = torch.linalg.inv(torch.eye(5) - model.harmony.matrix().double())
    across = torch.linalg.qr(torch.cat([way[:, None], torch.eye(5, dtype=torch.float64)], dim=1))[0][:, 1:]
    widest = torch.linalg.eigvalsh(across.T @ spread @ across)[-1]
    assert (found.plane[:, 1] @ spread @ found.plane[:, 1]).item() == pytest.approx(widest.item(), rel=1e-4)


def test_a_run_is_asked_by_name_and_drawn(graph: Graph, tmp_path: Path) -> None:
    run = make_run(graph, random_model(graph).float())
    names = graph.names_of(graph.train)[0]
    found = dynamics_of(run, *names, steps=7, samples=20)
    printed = found.to_json()
    assert (printed["triple"], printed["steps"], len(printed["harmony"])) == (names, 7, 8)
    assert printed["distance"] == found.distance.tolist()
    assert printed["samples"] == {"count": 20, "mean_harmony": found.sample_harmony.mean().item()}
    drawn = dynamics_figure(found, tmp_path / "climb.svg").read_text(encoding="utf-8")
    for text in (", ".join(names), "20 samples of p(h|x)", "distance to the closed form", "composed x", "token"):
        assert f"<!-- {text} -->" in drawn
    other = dynamics_of(run, *names, steps=7, samples=20, seed=1)
    assert not torch.equal(found.samples, other.samples)
    assert next(run.model.parameters()).dtype == torch.float32  # the run keeps its own
