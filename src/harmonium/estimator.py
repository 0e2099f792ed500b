"""A model of a graph as scikit-learn would have it: fit, predict and score on DataFrames of head, relation, tail.

It follows scikit-learn's conventions without needing it: the constructor only stores, `get_params` and `set_params` let
`clone` and searches work, and what was learned ends in an underscore.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import torch

from harmonium import classification, commands, evaluation, prediction
from harmonium.calibration import calibration_of
from harmonium.config import Config
from harmonium.datasets import load
from harmonium.errors import HarmoniumError
from harmonium.formats import BREAKS, COLUMNS
from harmonium.graph import Slot, Triples
from harmonium.rows import Rows


class LinkPredictor:
    """Learns from true facts; says of others whether they are true, and of open questions who answers them.

    >>> LinkPredictor(epochs=20).fit(facts).answer(pandas.DataFrame({"head": ["Austria"], "relation": ["borders"]}))
    """

    def __init__(
        self,
        composition: str = "hole",
        entity_dim: int = 64,
        harmony: bool = True,
        faithfulness: float = 1.0,  # lambda: how strongly a token is held to its composed vector
        rank: int | None = None,
        epochs: int = 100,
        learning_rate: float = 0.003,
        seed: int = 0,
        sets: Sequence[str] = (),  # any other setting, such as "train.negatives=64"
    ) -> None:
        self.composition, self.entity_dim, self.harmony, self.faithfulness = (
            composition,
            entity_dim,
            harmony,
            faithfulness,
        )
        self.rank, self.epochs, self.learning_rate, self.seed, self.sets = rank, epochs, learning_rate, seed, sets

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What the constructor was given."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> LinkPredictor:
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise HarmoniumError(f"LinkPredictor has no parameter '{name}'; there are {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = (f"{k}={v!r}" for k, v in self.get_params().items() if v != defaults[k].default)
        return f"LinkPredictor({', '.join(changed)})"

    def fit(self, X: Any, y: Any = None) -> LinkPredictor:
        """Train on the facts of a frame; with labels `y`, on those that are true. A twentieth is kept for validation."""
        groups = {"model": ("composition", "entity_dim", "harmony", "faithfulness", "rank")}
        groups["train"] = ("epochs", "learning_rate", "seed")
        tree = {group: {name: getattr(self, name) for name in names} for group, names in groups.items()}
        config = Config.of(tree, self.sets)
        facts = _table(X, COLUMNS)
        graph = load(facts if y is None else facts.filter(_labels(y, len(X))), seed=self.seed, valid=0.05, test=0)
        self.run_ = commands.train(config, graph)
        self.graph_, self.classes_ = self.run_.graph, np.array([False, True])
        self.__dict__.pop("classifier_", None)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """(n,) bool: whether each fact is called true, by thresholds from validation facts and made-up false ones."""
        return self._classify(X)[0]

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, 2): how probably each fact is false, and true, were half of such facts true."""
        true = self._classify(X)[1]
        return np.stack([1 - true, true], axis=1)

    def score(self, X: Any, y: Any = None) -> float:
        """With labels `y` the accuracy of `predict`; without, the filtered MRR of true facts, heads and tails.

        Facts known from training, and those of X, do not count against each other; a fact with an unseen name scores 0.
        """
        if y is not None:
            return float((self.predict(X) == _labels(y, len(X))).mean())
        triples, seen = self._triples(X)
        if not len(triples):
            return 0.0
        found = evaluation.evaluate(self.run_.model, replace(self.graph_, test=triples))
        return found.metrics["mrr"] * float(seen.mean())

    def answer(self, X: Any, top: int = 10, new_only: bool = False) -> Rows:
        """The best answers to each row, which leaves one of head, relation and tail out; `to_frame()` makes a table."""
        self._check_fitted()
        asked = _table(X, [name for name in COLUMNS if name in X.columns]).to_dicts()
        queries = [prediction.ask(self.graph_, **row) for row in asked]
        found, sure = [Rows() for _ in asked], calibration_of(self.run_)
        for slot in Slot:
            places = [place for place, query in enumerate(queries) if query.slot is slot]
            triples = Triples.cat([queries[place].triple for place in places]) if places else Triples.from_rows([])
            answers = prediction.answer_all(self.run_.model, self.graph_, slot, triples, top, new_only, sure)
            for place, some in zip(places, answers, strict=True):
                found[place] = [
                    {"question": place, **dict.fromkeys(COLUMNS), **asked[place], **a.to_json()} for a in some
                ]
        return Rows(row for rows in found for row in rows)

    def _classify(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        triples, seen = self._triples(X)
        if not hasattr(self, "classifier_"):
            held_out = classification.labelled(self.graph_, "valid", torch.Generator().manual_seed(self.seed))
            self.classifier_ = classification.classify(self.run_.model, self.graph_, held_out, held_out)
        called, true = np.zeros(len(seen), dtype=bool), np.zeros(len(seen))
        if len(triples):
            label, probability = self.classifier_.label(self.run_.model, triples)
            called[seen], true[seen] = label.numpy(), probability.numpy()
        return called, true

    def _triples(self, X: Any) -> tuple[Triples, np.ndarray]:
        """The facts of a frame whose names are known, and which rows those are (n,); nothing speaks for the others."""
        self._check_fitted()
        rows = _table(X, COLUMNS).rows()
        names = self.graph_.entities, self.graph_.relations, self.graph_.entities
        seen = np.array([all(n in v for n, v in zip(row, names, strict=True)) for row in rows], dtype=bool)
        ids = [[v.index(n) for n, v in zip(row, names, strict=True)] for row, ok in zip(rows, seen, strict=True) if ok]
        return Triples.from_rows(ids), seen

    def _check_fitted(self) -> None:
        if not hasattr(self, "run_"):
            raise HarmoniumError("this LinkPredictor has learned nothing yet; call fit(facts) first")


def _table(X: Any, columns: Sequence[str]) -> pl.DataFrame:
    """These columns of a pandas or polars frame as text; what is missing is null."""
    if not hasattr(X, "columns"):
        raise HarmoniumError(
            f"give a pandas or polars frame with columns head, relation, tail, not a {type(X).__name__}"
        )
    if absent := [name for name in columns if name not in X.columns]:
        raise HarmoniumError(
            f"no column '{absent[0]}' among {', '.join(map(str, X.columns))}; facts are {', '.join(COLUMNS)}"
        )
    cells = {name: [None if c is None or c != c else str(c) for c in X[name].to_list()] for name in columns}
    return pl.DataFrame(cells, schema=dict.fromkeys(columns, pl.String)).with_columns(
        pl.all().str.replace_all(BREAKS, " ")
    )


def _labels(y: Any, count: int) -> np.ndarray:
    """(n,) bool from labels such as True and False, 1 and 0, or 1 and -1."""
    labels = np.asarray(y)
    if labels.shape != (count,) or not (labels.dtype == bool or set(np.unique(labels)) <= {-1, 0, 1}):
        raise HarmoniumError(f"y is a label for each of {count:,} facts: True or False, 1 or 0, or 1 or -1")
    return labels > 0
