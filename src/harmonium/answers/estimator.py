"""LinkPredictor: fit, predict and score on DataFrames of head, relation, tail, with the conventions of scikit-learn.

scikit-learn itself is not needed: the constructor only stores, `get_params` and `set_params` let `clone` and searches
work, and what was learned ends in an underscore.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from harmonium.answers.classify import Classification, classify_triples, labelled_split
from harmonium.answers.predict import answer_all
from harmonium.answers.probability import calibration_for
from harmonium.answers.query import ask
from harmonium.data.columns import COLUMNS
from harmonium.data.datasets import load
from harmonium.data.entity_types import EntityTypes
from harmonium.data.names import LINE_BREAKS
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.runtime.errors import HarmoniumError
from harmonium.runtime.frames import ResultList
from harmonium.training.train import train


class LinkPredictor:
    """Learns from true facts; labels other facts true or false, and answers open queries.

    >>> LinkPredictor(epochs=20).fit(facts).answer(pandas.DataFrame({"head": ["Austria"], "relation": ["borders"]}))
    """

    def __init__(
        self,
        preset: str = "best",  # or fast, plain, paper
        minutes: float | None = None,  # time budget; None: the preset's
        composition: str | None = None,  # None, here and below: chosen by the preset
        entity_dim: int | None = None,
        harmony: bool | None = None,
        epochs: int | None = None,
        learning_rate: float | None = None,
        seed: int = 0,
        overrides: Sequence[str] = (),  # any other setting, such as "train.n3=0.1"
    ) -> None:
        self.preset = preset
        self.minutes = minutes
        self.composition = composition
        self.entity_dim = entity_dim
        self.harmony = harmony
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.seed = seed
        self.overrides = overrides

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters as the constructor was given them."""
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
        """Train on the facts of a frame; with labels `y`, on the true ones. One in twenty is kept for validation."""
        given = {f"model.{name}": getattr(self, name) for name in ("composition", "entity_dim", "harmony")}
        given |= {f"train.{name}": getattr(self, name) for name in ("epochs", "learning_rate", "seed")}
        overrides = [f"{key}={str(value).lower()}" for key, value in given.items() if value is not None]
        facts = _table(X, COLUMNS)
        graph = load(facts if y is None else facts.filter(_labels(y, len(X))), seed=self.seed, valid=0.05, test=0)
        self.run_ = train(graph, self.preset, overrides=[*overrides, *self.overrides], minutes=self.minutes)
        self.graph_, self.classes_ = self.run_.graph, np.array([False, True])
        self.classifier_: Classification | None = None
        return self

    def predict(self, X: Any) -> NDArray[np.bool_]:
        """(n,): whether each fact is labelled true, by thresholds fitted on validation facts and sampled negatives."""
        triples, seen = self._triples(X)
        if self.classifier_ is None:
            valid = labelled_split(self.graph_, "valid", torch.Generator().manual_seed(self.seed))
            self.classifier_ = classify_triples(self.run_.model, self.graph_, valid, valid)
        labels = np.zeros(len(seen), dtype=bool)
        if len(triples):
            labels[seen] = self.classifier_.label(self.run_.model, triples).numpy()
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(n, 2): the calibrated probability that each fact is false, and true: that of `harmonium.score`.

        Facts that the graph lacks count as false in it, so `predict`, which is best where half of the facts are false,
        labels a fact true at a lower probability than one half.
        """
        triples, seen = self._triples(X)
        true = np.zeros(len(seen))
        if len(triples):
            probability = calibration_for(self.run_).of_facts(self.run_.model, self.graph_, triples)
            if probability is None or probability.isnan().any():
                raise HarmoniumError("too few validation facts to fit probabilities; fit on more facts")
            true[seen] = probability.numpy()
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
        evaluation = evaluate_scorer(self.run_.model, replace(self.graph_, test=triples))
        return evaluation.metrics["mrr"] * float(seen.mean())

    def answer(self, X: Any, top: int = 10, new_only: bool = False) -> ResultList[dict[str, Any]]:
        """The best answers to each row, in which one of head, relation and tail is missing; `to_frame()` makes a table."""
        self._check_fitted()
        rows = _table(X, [name for name in COLUMNS if name in X.columns]).to_dicts()
        queries = [ask(self.graph_, **row) for row in rows]
        calibration, types = calibration_for(self.run_), EntityTypes.infer(self.graph_)
        results: dict[int, list[dict[str, Any]]] = {}
        for slot in Slot:
            numbers = [number for number, query in enumerate(queries) if query.slot is slot]
            if not numbers:
                continue
            triples = Triples.cat([queries[number].triple for number in numbers])
            answers = answer_all(self.run_.model, self.graph_, slot, triples, top, new_only, calibration, types=types)
            for number, best in zip(numbers, answers, strict=True):
                given = {"question": number, **dict.fromkeys(COLUMNS), **rows[number]}
                results[number] = [given | answer.to_json() for answer in best]
        return ResultList(row for number in range(len(rows)) for row in results[number])

    def _triples(self, X: Any) -> tuple[Triples, NDArray[np.bool_]]:
        """The facts of a frame whose names are all known, and which rows (n,) those are."""
        self._check_fitted()
        entities, relations = self.graph_.entities, self.graph_.relations
        facts = _table(X, COLUMNS).rows()
        seen = [head in entities and relation in relations and tail in entities for head, relation, tail in facts]
        known = [
            [entities.index(head), relations.index(relation), entities.index(tail)]
            for (head, relation, tail), is_seen in zip(facts, seen, strict=True)
            if is_seen
        ]
        return Triples.from_rows(known), np.array(seen, dtype=bool)

    def _check_fitted(self) -> None:
        if not hasattr(self, "run_"):
            raise HarmoniumError("this LinkPredictor is not fitted; call fit(facts) first")


def _table(X: Any, columns: Sequence[str]) -> pl.DataFrame:
    """These columns of a pandas or polars frame as text; missing cells are null."""
    if not hasattr(X, "columns"):
        raise HarmoniumError(
            f"give a pandas or polars frame with columns {', '.join(COLUMNS)}, not a {type(X).__name__}"
        )
    if absent := [name for name in columns if name not in X.columns]:
        raise HarmoniumError(
            f"no column '{absent[0]}' among {', '.join(map(str, X.columns))}; facts are {', '.join(COLUMNS)}"
        )
    cells = {name: [None if c is None or c != c else str(c) for c in X[name].to_list()] for name in columns}
    table = pl.DataFrame(cells, schema=dict.fromkeys(columns, pl.String))
    return table.with_columns(pl.all().str.replace_all(LINE_BREAKS, " "))


def _labels(y: Any, count: int) -> NDArray[np.bool_]:
    """(n,) from labels such as True and False, 1 and 0, or 1 and -1."""
    labels = np.asarray(y)
    if labels.shape != (count,) or not (labels.dtype == bool or set(np.unique(labels)) <= {-1, 0, 1}):
        raise HarmoniumError(f"y is a label for each of {count:,} facts: True or False, 1 or 0, or 1 or -1")
    return np.asarray(labels > 0)
