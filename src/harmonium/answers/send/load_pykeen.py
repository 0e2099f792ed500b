"""Load this folder into PyKEEN: `model, train, valid, test = load(folder)`; run as a script it ranks the test triples."""

import json
import sys
from pathlib import Path
from typing import Any


def load(folder: str | Path) -> tuple[Any, Any, Any, Any]:
    """The model, with the scores it was exported with, and the splits as PyKEEN's triples factories."""
    import numpy as np
    import torch
    from pykeen.models import ERModel
    from pykeen.nn.init import PretrainedInitializer
    from pykeen.triples import TriplesFactory

    about = json.loads((Path(folder) / "pykeen.json").read_text(encoding="utf-8"))
    with np.load(Path(folder) / "pykeen.npz", allow_pickle=False) as arrays:
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    names = {"entity_to_id": about["entities"], "relation_to_id": about["relations"]}
    names = {key: {name: index for index, name in enumerate(ids)} for key, ids in names.items()}
    inverse = about["create_inverse_triples"]
    train = TriplesFactory(tensors["train"], **names, create_inverse_triples=inverse)
    valid, test = (TriplesFactory(tensors[split], **names) for split in ("valid", "test"))
    form = {"shape": about["shape"], "dtype": getattr(torch, about["dtype"])}
    model = ERModel(
        triples_factory=train,
        interaction=about["interaction"],
        entity_representations_kwargs={**form, "initializer": PretrainedInitializer(tensors["entity"])},
        relation_representations_kwargs={**form, "initializer": PretrainedInitializer(tensors["relation"])},
    )
    return model.eval(), train, valid, test


if __name__ == "__main__":
    from pykeen.evaluation import RankBasedEvaluator

    model, train, valid, test = load(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
    known = [train.mapped_triples, valid.mapped_triples]
    results = RankBasedEvaluator(filtered=True).evaluate(
        model, test.mapped_triples, additional_filter_triples=known, batch_size=256, use_tqdm=False
    )
    names = ("mean_rank", "mean_reciprocal_rank", "hits_at_1", "hits_at_3", "hits_at_10")
    print(json.dumps({name: results.get_metric(f"both.realistic.{name}") for name in names}, indent=1))
