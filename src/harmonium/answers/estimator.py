"""LinkPredictor: fit, predict and score on tables of head, relation, tail, with the conventions of scikit-learn.

scikit-learn itself is not needed: the constructor only stores, `get_params` and `set_params` let `clone` and searches
work, and what was learned ends in an underscore. tests/answers/test_scikit_learn.py runs its own checks.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harmonium.answers.calibration.logistic import Examples, Prior, fit_grouped
from harmonium.answers.classify import Classification, classify_triples, labelled_split
from harmonium.answers.open_run import OpenRun, open_run
from harmonium.answers.prediction import Prediction
from harmonium.config.setting_values import Overrides, full_key, full_keys
from harmonium.config.settings import Config
from harmonium.data.datasets import load
from harmonium.data.tables.columns import COLUMNS
from harmonium.data.tables.fact_file import fact_table, read_rows
from harmonium.data.triples import Triples
from harmonium.errors import HarmoniumError
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.runtime.frames import ResultList
from harmonium.training.train import train

SLOPE_PRECISION = 0.1  # of the prior of log-odds per mean margin, which separable facts would make infinite
NO_SETTINGS = ("preset", "minutes", "overrides")  # parameters of LinkPredictor that are no settings


class LinkPredictor:
    """Learns from true facts; labels other facts true or false, and answers open queries.

    Tables have columns head, relation and tail: pandas or polars frames, lists of rows or arrays.

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
        overrides: Overrides = (),  # a dict of settings, or "key=value" each
        **settings: Any,  # any other setting by its name, such as n3=0.1, and as for `train` model=..., dim=..., lr=...
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
        self.set_params(**settings)

    @classmethod
    def _named_params(cls) -> dict[str, Any]:
        """The parameters that the constructor names, with their defaults."""
        parameters = inspect.signature(cls).parameters.values()
        return {each.name: each.default for each in parameters if each.kind is not each.VAR_KEYWORD}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters as the constructor was given them; what was learned ends in an underscore."""
        settings = [name for name in vars(self) if not name.startswith("_") and not name.endswith("_")]
        return {name: getattr(self, name) for name in dict.fromkeys([*self._named_params(), *settings])}

    def set_params(self, **params: Any) -> LinkPredictor:
        """Change parameters; any setting is one."""
        for name, value in params.items():
            if name not in self.get_params():
                try:
                    full_key(Config, name, value)
                except HarmoniumError as error:
                    known = ", ".join(self._named_params())
                    raise HarmoniumError(
                        f"LinkPredictor has no parameter '{name}'; there are {known} and every setting ({error})"
                    ) from None
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = self._named_params()
        changed = (f"{k}={v!r}" for k, v in self.get_params().items() if k not in defaults or v is not defaults[k])
        return f"LinkPredictor({', '.join(changed)})"

    def _settings(self) -> dict[str, Any]:
        """The settings that stay fixed, by their full names; those given by any other name count over the parameters."""
        named = self._named_params()
        given = {name: value for name, value in self.get_params().items() if name not in NO_SETTINGS}
        others = {name: value for name, value in given.items() if name not in named}
        chosen = {name: value for name, value in given.items() if name in named and value is not None}
        return full_keys(Config, chosen) | full_keys(Config, self.overrides) | full_keys(Config, others)

    def fit(self, X: Any, y: Any = None) -> LinkPredictor:
        """Train on facts, a table or anything else that `load` reads; with labels `y`, on the true rows of a table.

        One fact in twenty is kept for validation, or up to one in ten of a small graph.
        """
        facts, settings = X, self._settings()
        if y is not None:
            facts = fact_table(X)
            facts = facts.filter(_labels(y, len(facts)))
        seed = Config.of({}, {"train.seed": settings.get("train.seed", 0)}).train.seed
        graph = load(facts, seed=seed, test=0)
        self.run_ = train(graph, self.preset, overrides=settings, minutes=self.minutes)
        self.graph_, self.classes_, self.n_features_in_ = self.run_.graph, np.array([False, True]), len(COLUMNS)
        self.classifier_: Classification | None = None
        with suppress(HarmoniumError):  # `predict` says what is wrong
            self.classifier_ = self._thresholds()
        return self

    def _thresholds(self) -> Classification:
        """Thresholds of the relations, by validation facts (training facts, where there are none) and as many false ones."""
        split, seed = "valid" if len(self.graph_.valid) else "train", self.run_.config.train.seed
        labelled = labelled_split(self.graph_, split, torch.Generator().manual_seed(seed))
        return classify_triples(self._opened.held_out_scores, self.graph_, labelled, labelled)

    def predict(self, X: Any) -> NDArray[np.bool_]:
        """(n,): whether each fact is labelled true: where `predict_proba` says that it is at least as likely as not."""
        return np.asarray(self.predict_proba(X)[:, 1] >= 0.5)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(n, 2): the probability that each fact is false, and true, among facts of which half are true.

        That is what labels are usually predicted for. `run_.score` rates a fact among all that the graph lacks, of which
        few are true: its probability is lower. A fact with an unseen name is false.
        """
        true = self._probabilities(X)
        return np.stack([1 - true, true], axis=1)

    def _probabilities(self, X: Any) -> NDArray[np.float64]:
        """(n,): that each fact is true, among facts of which half are."""
        triples, seen = self._triples(X)
        true = np.zeros(len(seen))
        classifier = self.classifier_ or self._thresholds()
        if len(triples):
            log_odds = _slope(classifier) * classifier.margins_of(self._opened.held_out_scores, triples)
            true[seen] = log_odds.sigmoid().numpy()
        return true

    def score(self, X: Any, y: Any = None) -> float:
        """With labels `y` the accuracy of `predict`; without, the filtered MRR of true facts, heads and tails.

        Facts known from training, and those of X, do not count against each other; a fact with an unseen name scores 0.
        """
        if y is not None:
            labels = self.predict(X)
            return float((labels == _labels(y, len(labels))).mean())
        triples, seen = self._triples(X)
        if not len(triples):
            return 0.0
        evaluation = evaluate_scorer(self._opened.scorer, replace(self.graph_, test=triples))
        return evaluation.metrics["mrr"] * float(seen.mean())

    def answer(self, X: Any, top: int = 10, new_only: bool = False) -> ResultList[Prediction]:
        """The best answers to each row, in which one of head, relation and tail is missing; `to_frame()` makes a table."""
        self._check_fitted()
        answers: ResultList[Prediction] = self.run_.predict(X, top=top, new_only=new_only)
        return answers

    @property
    def _opened(self) -> OpenRun:
        return open_run(self.run_)

    def _triples(self, X: Any) -> tuple[Triples, NDArray[np.bool_]]:
        """The facts of a table whose names are all known, and which rows (n,) those are."""
        self._check_fitted()
        entities, relations = self.graph_.entities, self.graph_.relations
        facts = [(row["head"], row["relation"], row["tail"]) for _, row in read_rows(X)]
        seen = [head in entities and relation in relations and tail in entities for head, relation, tail in facts]
        known = [
            [entities.index(head), relations.index(relation), entities.index(tail)]
            for (head, relation, tail), is_seen in zip(facts, seen, strict=True)
            if is_seen
        ]
        return Triples.from_rows(known), np.array(seen, dtype=bool)

    # scikit-learn asks for these ---------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "run_")

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn should know: rows are names, not numbers, and labels may be left out."""
        from sklearn.utils import InputTags, Tags, TargetTags

        inputs = InputTags(two_d_array=True, string=True, categorical=True)
        return Tags(estimator_type=None, target_tags=TargetTags(required=False), input_tags=inputs)

    def _check_fitted(self) -> None:
        if self.__sklearn_is_fitted__():
            return
        kinds: tuple[type, ...] = (HarmoniumError,)
        if "sklearn" in sys.modules:  # whose users expect its own error
            from sklearn.exceptions import NotFittedError

            kinds = (HarmoniumError, NotFittedError)
        raise type("NotFittedError", kinds, {})("this LinkPredictor is not fitted; call fit(facts) first")


def _slope(classifier: Classification) -> float:
    """Log-odds that a labelled fact is true, for each unit of its margin: logistic regression, weakly held down."""
    scale = float(classifier.margins.square().mean().sqrt()) or 1.0
    inputs, weight = classifier.margins[:, None] / scale, torch.ones(len(classifier.labels), dtype=torch.float64)
    examples = Examples.ungrouped(inputs, classifier.labels.double(), weight)
    return max(0.0, fit_grouped(examples, Prior.flat(1, SLOPE_PRECISION)).weights.item()) / scale


def _labels(y: Any, count: int) -> NDArray[np.bool_]:
    """(n,) from labels such as True and False, 1 and 0, or 1 and -1."""
    labels = np.asarray(y)
    if labels.shape != (count,) or not (labels.dtype == bool or set(np.unique(labels)) <= {-1, 0, 1}):
        raise HarmoniumError(f"y is a label for each of {count:,} facts: True or False, 1 or 0, or 1 or -1")
    return np.asarray(labels > 0)
