"""Probabilities corrected by judgements: better for judges who know more than the graph, unchanged for those who agree."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import harmonium
from harmonium.answers.calibration.judgement_correction import (
    JudgementCorrection,
    correction_for,
    keep_correction,
)
from harmonium.answers.open_run import open_run
from harmonium.data.graph import Graph
from harmonium.errors import HarmoniumError
from harmonium.review.recalibration import Recalibration, fit_correction, recalibrate
from harmonium.review.store import Judgement
from harmonium.run.run import Run
from small import CONFIGS, make_graph, save_untrained

RELATIONS = 3


def simulate(n: int, intercept: float, slope: float, spread: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Log-odds (n,), labels by judges whose truth is a changed probability, and relations; the most probable first.

    As in the queue, only the more probable half of the facts is judged.
    """
    generator = torch.Generator().manual_seed(seed)
    log_odds = (2 * torch.randn(2 * n, generator=generator, dtype=torch.float64)).sort(descending=True).values[:n]
    relations = torch.randint(RELATIONS, (n,), generator=generator)
    own = spread * torch.randn(RELATIONS, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    true = (intercept + slope * log_odds + own[relations]).sigmoid()
    return log_odds, (torch.rand(n, generator=generator, dtype=torch.float64) < true).double(), relations


def judgements(log_odds: Tensor, label: Tensor, relations: Tensor, run: str = "run") -> list[Judgement]:
    rows = zip(log_odds.sigmoid().tolist(), label.tolist(), relations.tolist(), strict=True)
    return [
        Judgement(i, f"e{i % 12}", f"r{relation}", f"e{i // 12}", "accepted" if true else "rejected", "ana", "", "", p, p,
                  i + 1, "use", run, "")
        for i, (p, true, relation) in enumerate(rows)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def graph() -> Graph:
    return make_graph(n_entities=60, sizes=(150, 40, 10))


JUDGES = {
    "agree": (0.0, 1.0, 0.0),
    "know more": (1.5, 1.0, 0.0),
    "are stricter": (-1.0, 1.0, 0.5),
    "are less sure": (0.0, 0.4, 0.0),
    "differ by relation": (0.0, 1.0, 1.5),
    "know nothing": (0.0, 0.0, 0.0),
    "disagree with the order": (0.0, -1.0, 0.0),
}


@pytest.mark.parametrize("n", [15, 60, 300])
@pytest.mark.parametrize("kind", JUDGES)
def test_the_log_loss_of_other_facts_falls_or_stays(graph: Graph, kind: str, n: int) -> None:
    """Mean over several samples of judged facts; on facts that were not judged, from all probabilities alike."""
    log_odds, label, relations = simulate(4000, *JUDGES[kind], seed=99)
    before = F.binary_cross_entropy_with_logits(log_odds, label).item()
    after = []
    for seed in range(4):
        result = recalibrate(judgements(*simulate(n, *JUDGES[kind], seed=seed)), graph, "run")
        corrected = log_odds if result.correction is None else result.correction.apply(log_odds, relations)
        after.append(F.binary_cross_entropy_with_logits(corrected, label).item())
    mean = sum(after) / len(after)
    assert mean <= before + (0.01 if n >= 60 else 0.03)
    if n == 300 and kind != "agree":
        assert mean < before - 0.02


def test_the_correction_is_monotone_and_shrunk_to_no_change() -> None:
    log_odds, label, relations = simulate(300, 0.0, -1.0, 0.0, seed=1)
    assert fit_correction(log_odds, label, relations).slope == pytest.approx(0.05)
    few = fit_correction(*simulate(3, 0.0, 1.0, 0.0, seed=1))
    assert abs(few.intercept) < 0.8 and abs(few.slope - 1) < 0.3
    many = fit_correction(*simulate(3000, 1.5, 0.6, 0.0, seed=1))
    assert (many.intercept, many.slope) == (pytest.approx(1.5, abs=0.15), pytest.approx(0.6, abs=0.1))


def test_a_relation_is_corrected_by_its_own_judgements(graph: Graph) -> None:
    log_odds = torch.zeros(200).double()
    relations = torch.arange(200) % 2
    result = recalibrate(judgements(log_odds, (relations == 0).double(), relations), graph, "run")
    corrected = result.correction.apply(torch.zeros(3).double(), torch.arange(3)).sigmoid()
    assert corrected[0] > 0.85 and corrected[1] < 0.15
    assert corrected[2].item() == pytest.approx(0.5, abs=0.1)  # nobody judged it
    assert set(result.correction.by_relation) == {0, 1}


def test_what_says_nothing_is_left_out_and_too_little_is_an_error(graph: Graph) -> None:
    rows = judgements(*simulate(40, 0.0, 1.0, 0.0, seed=0))
    odd = [
        Judgement(100, "e50", "r0", "e51", "unsure", "ana", "", "", 0.5, 0.5, 1, "use", "run", ""),
        Judgement(101, "e50", "r0", "e52", "accepted", "ana", "", "", 0.5, 0.5, 1, "use", "run", ""),
        Judgement(102, "e50", "r0", "e52", "rejected", "ben", "", "", 0.5, 0.5, 1, "use", "run", ""),
        Judgement(103, "e50", "r0", "e53", "accepted", "ana", "", "", None, None, 1, "use", "run", ""),
        Judgement(104, "nobody", "r0", "e53", "accepted", "ana", "", "", 0.5, 0.5, 1, "use", "run", ""),
        Judgement(105, "e50", "r9", "e53", "accepted", "ana", "", "", 0.5, 0.5, 1, "use", "run", ""),
    ]
    result = recalibrate([*rows, *odd], graph, "another run")
    assert isinstance(result, Recalibration)
    assert (result.facts, result.left_out, result.other_runs) == (40, 5, 40)
    assert result.log_loss == recalibrate(rows, graph, "run").log_loss
    with pytest.raises(HarmoniumError, match=r"9 judged facts .* 10 are needed .*\(5 disputed, unsure"):
        recalibrate([*rows[:9], *odd], graph, "run")


# In a run ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_untrained(graph, CONFIGS["plain"], tmp_path_factory.mktemp("runs") / "run")


def test_a_correction_is_kept_in_the_run_and_used_by_complete(saved: Path) -> None:
    def probabilities(run: Run) -> dict[tuple[str, ...], float]:
        return {(row.head, row.relation, row.tail): row.probability for row in run.complete(top=2000, reasons=False)}

    run = harmonium.Run.load(saved)
    before = probabilities(run)
    correction = JudgementCorrection(1.0, 0.5, {1: -0.3}, 40)
    keep_correction(run, correction)
    assert correction_for(harmonium.Run.load(saved)) == correction
    after = probabilities(harmonium.Run.load(saved))
    for fact in before.keys() & after.keys():
        odds = 1.0 + 0.5 * torch.tensor(before[fact]).double().logit() - (0.3 if fact[1] == "r1" else 0)
        assert after[fact] == pytest.approx(odds.sigmoid().item())
    assert len(before.keys() & after.keys()) > 100
    assert open_run(run).fact_calibration().uncorrected().correction is None
    keep_correction(run, None)
    assert probabilities(run) == before
