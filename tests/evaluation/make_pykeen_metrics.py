"""Write pykeen_metrics.json: random scores with many ties, and the metrics that PyKEEN makes of them.

test_ranking.py reads it. Run .venv-pykeen/bin/python tests/evaluation/make_pykeen_metrics.py (`make bench` installs it).
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models.baseline.models import EvaluationOnlyModel
from pykeen.triples import TriplesFactory
from pykeen.version import get_version

N_ENTITIES, N_RELATIONS, SIZES = 17, 3, (120, 15, 40)
LEVELS = (1, 2, 5, 1000)  # so many different scores
NAMES = {"mr": "arithmetic_mean_rank", "mrr": "inverse_harmonic_mean_rank"}
NAMES |= {"hits@1": "hits_at_1", "hits@3": "hits_at_3", "hits@10": "hits_at_10"}
NAMES |= {"amri": "adjusted_arithmetic_mean_rank_index"}


class Table(EvaluationOnlyModel):
    """Scores from two tables, (relation, given entity, candidate)."""

    def __init__(self, triples_factory: TriplesFactory, heads: torch.Tensor, tails: torch.Tensor) -> None:
        super().__init__(triples_factory)
        self.register_buffer("heads", heads)
        self.register_buffer("tails", tails)

    def score_t(self, hr_batch: torch.Tensor, **options) -> torch.Tensor:
        return self.tails[hr_batch[:, 1], hr_batch[:, 0]].float()

    def score_h(self, rt_batch: torch.Tensor, **options) -> torch.Tensor:
        return self.heads[rt_batch[:, 0], rt_batch[:, 1]].float()


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    cells = torch.randperm(N_ENTITIES * N_RELATIONS * N_ENTITIES, generator=generator)[: sum(SIZES)]
    columns = [cells // (N_RELATIONS * N_ENTITIES), cells // N_ENTITIES % N_RELATIONS, cells % N_ENTITIES]
    train, valid, test = torch.stack(columns, dim=1).split(list(SIZES))
    ids = [{f"{kind}{i}": i for i in range(n)} for kind, n in (("e", N_ENTITIES), ("r", N_RELATIONS))]
    factory = TriplesFactory(mapped_triples=train, entity_to_id=ids[0], relation_to_id=ids[1])
    cases = []
    for levels in LEVELS:
        shape = (N_RELATIONS, N_ENTITIES, N_ENTITIES)
        heads, tails = (torch.randint(levels, shape, generator=generator) for _ in range(2))
        case = {"levels": levels, "heads": heads.tolist(), "tails": tails.tolist(), "metrics": {}}
        model, raw = Table(factory, heads, tails), RankBasedEvaluator(filtered=False)
        for target, scores, truth in (
            ("head", model.score_h(test[:, 1:]), test[:, :1]),
            ("tail", model.score_t(test[:, :2]), test[:, 2:]),
        ):
            raw.process_scores_(test, target, scores, scores.gather(1, truth))  # evaluate() has no true scores for it
        filtered = RankBasedEvaluator(filtered=True).evaluate(
            model, test, batch_size=8, use_tqdm=False, additional_filter_triples=[train, valid]
        )
        for which, metrics in (("filtered", filtered), ("raw", raw.finalize())):
            for side in ("head", "tail", "both"):
                for ties in ("optimistic", "realistic", "pessimistic"):
                    wanted = {ours: theirs for ours, theirs in NAMES.items() if ours != "amri" or ties == "realistic"}
                    values = {ours: metrics.get_metric(f"{side}.{ties}.{theirs}") for ours, theirs in wanted.items()}
                    case["metrics"][f"{which} {side} {ties}"] = values
        cases.append(case)
    facts = {"made by": f"PyKEEN {get_version()}"}
    facts |= {"train": train.tolist(), "valid": valid.tolist(), "test": test.tolist()}
    file = Path(__file__).with_name("pykeen_metrics.json")
    file.write_text(json.dumps(facts | {"cases": cases}, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
