"""A user's script: mypy --strict must accept it and know every type in it (`make lint`). It is not run."""

from typing import Any, assert_type

import harmonium
from harmonium.analysis.diff import Difference
from harmonium.analysis.explain import Explanation
from harmonium.analysis.rules import LearnedRules
from harmonium.analysis.similar import Similar
from harmonium.answers.classify import Classification
from harmonium.answers.prediction import Prediction
from harmonium.data.checks.diagnosis import Diagnosis
from harmonium.evaluation.evaluation import Evaluation
from harmonium.runtime.frames import ResultList
from harmonium.training.search.planning import Plan

run = harmonium.train("facts.csv", epochs=50, model="complex", progress=False)
assert_type(run, harmonium.Run)
assert_type(harmonium.train([("a", "r", "b")], {"train.epochs": 5}, preset=None), harmonium.Run)
assert_type(harmonium.plan("facts.csv", dim=32), Plan)
assert_type(run.metrics["mrr"], float)

answers = run.predict(head="Austria", relation="borders", top=3)
assert_type(answers, ResultList[Prediction])
best: str = answers[0].name
run.predict("Austria", "borders")
run.predict({"head": ["Austria"], "relation": ["borders"]})

scored = run.score([("Austria", "borders", "Hungary")])
assert_type(scored, ResultList[Prediction])
assert_type(scored[0].probability, float | None)
assert_type(run.score("facts.csv", out="scored.csv"), int)
assert_type(harmonium.score(run, "facts.csv"), ResultList[Prediction])

assert_type(run.complete("borders", top=5), ResultList[Prediction])
evaluation = run.evaluate(split="valid", ties="pessimistic")
assert_type(evaluation, Evaluation)
assert_type(evaluation.metrics["mrr"], float)
assert_type(run.explain("Austria", "borders", "Hungary"), Explanation)
assert_type(run.similar("Austria", "borders", "Hungary", top=3), Similar)
assert_type(run.classify(), Classification)
assert_type(run.update(add="new.tsv", remove="wrong.tsv", out="runs/more"), harmonium.Run)
assert_type(run.diff("runs/more"), Difference)
assert_type(run.info(), dict[str, Any])
run.report("report.html")
assert_type(run.rules("borders", top=5), LearnedRules)
run.export("vectors.parquet", overwrite=True)
run.serve(port=8001)
assert_type(harmonium.doctor("facts.csv"), Diagnosis)
assert_type(harmonium.load([("a", "r", "b")]), harmonium.Graph)
assert_type(harmonium.LinkPredictor(model="complex", epochs=5).fit([("a", "r", "b")]), harmonium.LinkPredictor)

run.predict(head="Austria", relaton="borders")  # type: ignore[call-overload]  # an unknown parameter is an error
run.explain("Austria")  # type: ignore[call-arg]
harmonium.Run.load("runs/demo").metrics["mrr"].upper()  # type: ignore[attr-defined]
