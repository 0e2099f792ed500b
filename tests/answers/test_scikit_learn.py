"""scikit-learn's own checks of estimators, on LinkPredictor."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, validate_data

from harmonium import LinkPredictor
from small import family

FAST: dict[str, Any] = {"preset": "paper", "entity_dim": 4, "epochs": 1}
NOT_THREE = "makes tables of numbers that do not have three columns; facts are a head, a relation and a tail"
LABELS = "makes labels of more than two kinds; a fact is true or false"
NUMBERS = "expects its own error for numbers that are complex, infinite or sparse; cells are names"
FEW = "makes a single fact, of which none can be kept for validation"
NOT_APPLICABLE = {
    "check_fit_score_takes_y": LABELS,
    "check_dont_overwrite_parameters": LABELS,
    "check_f_contiguous_array_estimator": LABELS,
    "check_methods_sample_order_invariance": LABELS,
    "check_methods_subset_invariance": LABELS,
    "check_dict_unchanged": LABELS,
    "check_fit2d_predict1d": LABELS,
    "check_pipeline_consistency": LABELS,
    "check_estimators_overwrite_params": NOT_THREE,
    "check_estimators_fit_returns_self": NOT_THREE,
    "check_readonly_memmap_input": NOT_THREE,
    "check_n_features_in_after_fitting": NOT_THREE,
    "check_positive_only_tag_during_fit": NOT_THREE,
    "check_estimators_dtypes": NOT_THREE,
    "check_dtype_object": NOT_THREE,
    "check_estimators_empty_data_messages": NOT_THREE,
    "check_fit2d_1sample": NOT_THREE,
    "check_fit2d_1feature": NOT_THREE,
    "check_fit_idempotent": NOT_THREE,
    "check_fit_check_is_fitted": NOT_THREE,
    "check_n_features_in": NOT_THREE,
    "check_complex_data": NUMBERS,
    "check_estimators_nan_inf": NUMBERS,
    "check_estimator_sparse_tag": NUMBERS,
    "check_estimator_sparse_array": NUMBERS,
    "check_estimator_sparse_matrix": NUMBERS,
    "check_estimators_pickle": FEW,
}


class OnNumbers(BaseEstimator, LinkPredictor):  # type: ignore[misc]
    """LinkPredictor on the tables of numbers that checks make: each row becomes a fact, its labels are ignored.

    So the checks that `NOT_APPLICABLE` leaves out run on the estimator's own code, except those of numbers, which
    scikit-learn's `validate_data` answers.
    """

    __repr__, get_params, set_params = LinkPredictor.__repr__, LinkPredictor.get_params, LinkPredictor.set_params
    __sklearn_tags__ = LinkPredictor.__sklearn_tags__

    def fit(self, X: Any, y: Any = None) -> OnNumbers:
        X = validate_data(self, X, ensure_min_samples=2, ensure_min_features=2)
        super().fit(to_facts(X))
        self.n_features_in_ = X.shape[1]
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        return super().predict_proba(to_facts(validate_data(self, X, reset=False)))

    def score(self, X: Any, y: Any = None) -> float:
        return super().score(to_facts(validate_data(self, X, reset=False)))


def to_facts(X: NDArray[np.float64]) -> list[tuple[str, str, str]]:
    """A fact for each row, which depends on this row alone."""
    cells = (np.abs(np.asarray(X, dtype=float)).sum(axis=1) * 1000).astype(int)
    return [(f"e{cell % 7}", f"r{cell % 2}", f"e{cell // 7 % 11}") for cell in cells.tolist()]


def test_the_checks_that_apply_to_facts_pass_and_no_other_is_left_out() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it does not inherit from BaseEstimator, and which checks are skipped
        results = check_estimator(LinkPredictor(**FAST), expected_failed_checks=NOT_APPLICABLE, on_fail=None)
    failed = {result["check_name"] for result in results if result["status"] == "failed"}
    assert failed == set()
    unnecessary = set(NOT_APPLICABLE) - {result["check_name"] for result in results if result["status"] == "xfail"}
    assert unnecessary == set()
    assert sum(result["status"] == "passed" for result in results) >= 11


@parametrize_with_checks([OnNumbers(**FAST)])
def test_all_checks_pass_on_rows_that_are_made_into_facts(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def facts() -> pd.DataFrame:
    graph = family()
    return pd.DataFrame(graph.names_of(graph.facts()), columns=["head", "relation", "tail"])


def test_it_is_cloned_searched_and_cross_validated(facts: pd.DataFrame) -> None:
    model = LinkPredictor(**FAST, lr=0.05, model="ComplEx", negatives=8)
    assert clone(model).get_params() == model.get_params()
    assert len(cross_val_score(model, facts, cv=KFold(3, shuffle=True, random_state=0))) == 3
    search = GridSearchCV(
        model, {"epochs": [1, 30], "dim": np.array([4, 8])}, cv=KFold(2, shuffle=True, random_state=0)
    )
    best = search.fit(facts).best_estimator_
    assert best.epochs == 30
    assert best.run_.config.model.entity_dim == search.best_params_["dim"]
    assert make_pipeline(model).fit(facts).predict(facts).shape == (120,)


def test_an_estimator_that_is_not_fitted_says_so_in_both_ways(facts: pd.DataFrame) -> None:
    with pytest.raises(NotFittedError, match="call fit"):
        LinkPredictor().predict(facts)
