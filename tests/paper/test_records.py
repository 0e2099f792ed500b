from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from harmonium.config.settings import Config
from harmonium.paper import records, tables


def make_record(
    row: str = "hhole-1", seed: int = 0, mrr: float = 0.5, variant: str = "calibrated", **more: object
) -> dict:
    config = Config.read(None, ["model.faithfulness=inf", f"train.seed={seed}"])
    metrics = {"mr": 20.0, "mrr": mrr, "hits@1": 0.1, "hits@3": 0.2, "hits@10": 0.3}
    return {
        "table": "table1", "dataset": "FB15K", "row": row, "variant": variant, "model": "HHolE", "lambda": "inf",
        "dim": 64, "seed": seed, "settings": records.settings(config), **metrics, "full": metrics | {"mrr": mrr / 2},
        "published": {**metrics, "mr": 21, "mrr": 0.6},
    } | more  # fmt: skip


def test_a_record_replaces_its_predecessor_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "results" / "table1.json"
    assert records.read(file) == []
    for record in (make_record(seed=1), make_record(), make_record(seed=1, mrr=0.7), make_record("hole", seed=1)):
        records.keep(file, record)
    assert [(r["row"], r["seed"], r["mrr"]) for r in records.read(file)] == [
        ("hhole-1", 0, 0.5), ("hhole-1", 1, 0.7), ("hole", 1, 0.5),
    ]  # fmt: skip
    assert [path.name for path in file.parent.iterdir()] == ["table1.json"]


def test_differences_are_settings_that_change_the_result() -> None:
    record, config = make_record(), Config.read(None, ["model.faithfulness=inf"])
    assert records.differences(record, config) == []
    moved = replace(config, data="other", train=replace(config.train, device="cpu", threads=3))
    assert records.differences(record, moved) == []
    changed = Config.read(None, ["model.faithfulness=2", "train.epochs=7"])
    assert records.differences(record, changed) == ["model.faithfulness=2.0", "train.epochs=7"]


def test_intervals_are_students() -> None:
    """By hand: 0, 1, 2 have mean 1, standard deviation 1; t(2 degrees of freedom, 97.5 %) = 4.303. For 12: 2.201."""
    middle, half = records.mean([0.0, 1.0, 2.0])
    assert middle == 1.0
    assert half == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)
    values = [0.0, 1.0] * 6
    assert records.mean(values)[1] == pytest.approx(2.20099 * math.sqrt(3 / 11) / math.sqrt(12), rel=1e-4)
    assert records.format_mean([0.5]) == "0.500"
    assert records.format_mean([0.5, 0.5]) == "0.500 ± 0.000"
    assert records.format_mean([None]) == "-"


def test_the_model_table_has_published_above_ours_and_both_protocols_in_a_line() -> None:
    plain = make_record("hole", mrr=0.4, **{"lambda": None, "model": "HolE"})
    plain["settings"]["model"]["harmony"] = False
    group = [make_record(seed=s, mrr=m) for s, m in ((0, 0.61), (1, 0.63))] + [make_record(variant="faithful"), plain]
    head, rows = tables.model_table(group)
    assert [row[:2] for row in rows] == [
        ["HolE d=64", "published"], ["HolE d=64", "calibrated"], ["HHolE λ=inf d=64", "published"],
        ["HHolE λ=inf d=64", "faithful"], ["HHolE λ=inf d=64", "calibrated, 2 seeds"],
    ]  # fmt: skip
    assert all(len(row) == len(head) for row in rows)
    mrr, full = head.index("mrr"), head.index("full mrr")
    assert [rows[2][mrr], rows[3][mrr], rows[3][full]] == ["0.600", "0.500", "0.250"]
    assert rows[4][mrr].startswith("0.620 ± 0.1")
    assert [row[-1] for row in rows] == ["", "-0.200", "", "-0.100", "+0.020"]
    assert rows[2][2] == "21"
