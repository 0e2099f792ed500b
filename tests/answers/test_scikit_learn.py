"""scikit-learn's own checks of estimators, on LinkPredictor."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from harmonium import LinkPredictor
from small import family

FAST: dict[str, Any] = {"preset": "paper", "entity_dim": 4, "epochs": 1}
NOT_THREE = "makes tables of numbers that do not have three columns; facts are a head, a relation and a tail"
LABELS = "makes labels of more than two kinds; a fact is true or false"
NUMBERS = "expects its own error for numbers that are complex, infinite or sparse; cells are names"
FEW = "makes a single fact, of which none can be kept for validation"
NOT_APPLICABLE = {
    "check_do_not_raise_errors_in_init_or_set_params": "gives **settings as a setting; unknown ones are errors",
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
    "check_estimator_sparse_array": NUMBERS,
    "check_estimator_sparse_matrix": NUMBERS,
    "check_estimators_pickle": FEW,
}


def test_the_checks_that_apply_to_facts_pass_and_no_other_is_left_out() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it does not inherit from BaseEstimator, and which checks are skipped
        results = check_estimator(LinkPredictor(**FAST), expected_failed_checks=NOT_APPLICABLE, on_fail=None)
    failed = {result["check_name"] for result in results if result["status"] == "failed"}
    assert failed == set()
    unnecessary = set(NOT_APPLICABLE) - {result["check_name"] for result in results if result["status"] == "xfail"}
    assert unnecessary == set()
    assert sum(result["status"] == "passed" for result in results) >= 11


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
