"""How answers, their probabilities and their evaluation look in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harmonium.cli import console
from harmonium.cli.display.training import interval_rows

if TYPE_CHECKING:
    from harmonium.answers.calibration.probability import Calibration
    from harmonium.answers.calibration.slot_calibration import Reliability
    from harmonium.answers.classify import Classification, LabelledFact
    from harmonium.answers.query import Answer
    from harmonium.answers.score import ScoredFact
    from harmonium.data.graph import Graph
    from harmonium.evaluation.evaluation import Evaluation
    from harmonium.run.run import Run


def percent(probability: float | None) -> str:
    if probability is None:
        return ""
    return "< 0.1%" if 0 < probability < 0.001 else f"{probability:.1%}"


def fact_status(split: str | None) -> str:
    return f"known ({split})" if split else "new"


def missing_probabilities(probabilities: Sequence[float | None]) -> str | None:
    """Why there are no probabilities, if there are none."""
    if probabilities and all(probability is None for probability in probabilities):
        return "no probabilities: switched off, or too few validation facts to fit them"
    return None


def show_answers(query: str, answers: Sequence[Answer]) -> None:
    rows = [
        [
            int(a.rank) if a.rank.is_integer() else a.rank,
            a.name,
            a.score,
            fact_status(a.known),
            "" if a.known else percent(a.probability),
        ]
        for a in answers
    ]
    caption = missing_probabilities([answer.probability for answer in answers if not answer.known])
    console.table(f"({query})", ["rank", "answer", "score", "fact", "probability"], rows, caption)


def show_answer_set(query: str, answers: Sequence[Answer], coverage: float, top: int) -> None:
    """The best answers of a set, and what it covers."""
    show_answers(query, answers[:top])
    size = "1 answer" if len(answers) == 1 else f"{len(answers):,} answers"
    shown = f" ({top:,} shown)" if len(answers) > top else ""
    console.say(f"  the answer set has {size}{shown}: where the graph lacks an answer to such a question,", "dim")
    console.say(f"  the set holds it in {100 * coverage:g} % of cases", "dim")


def show_scored(title: str, facts: Sequence[ScoredFact]) -> None:
    rows = [
        [fact.text, fact.score, percent(fact.probability), f"{fact.rank:g}", percent(fact.head_probability),
         f"{fact.head_rank:g}", fact_status(fact.known)]
        for fact in facts
    ]  # fmt: skip
    columns = ["fact", "score", "as tail", "rank", "as head", "rank", ""]
    console.table(title, columns, rows, "ranks among answers that are not known facts")


def show_missing(graph: Graph, facts: Sequence[Mapping[str, Any]]) -> None:
    """Facts with their probabilities and, where they have them, reasons."""
    title, caption = f"Missing from {graph.name}", missing_probabilities([fact["probability"] for fact in facts])
    vocabularies = {"head": graph.entities, "relation": graph.relations, "tail": graph.entities}
    names = [[v.name(v.index(fact[column])) for column, v in vocabularies.items()] for fact in facts]
    if not facts or "reason" not in facts[0]:
        rows = [[*words, percent(fact["probability"]), fact["rank"]] for words, fact in zip(names, facts, strict=True)]
        console.table(title, [*vocabularies, "probability", "rank"], rows, caption)
        return
    console.say(title, "bold")
    width = max(len(percent(fact["probability"])) for fact in facts)
    for words, fact in zip(names, facts, strict=True):
        console.item(f"{percent(fact['probability']):>{width}}", " · ".join(words), fact["reason"])
    if caption:
        console.say(f"  {caption}", "dim")
    console.say("")


def show_bands(run: Run, facts: Sequence[Mapping[str, Any]]) -> None:
    """How many facts are how probable, and how many of them should be true."""
    from harmonium.answers.calibration.judgement_correction import correction_for
    from harmonium.answers.complete import probability_bands

    bands, rows, high = probability_bands(facts), [], "or more"
    for band in bands:
        rows.append([f"{100 * band.low:.0f} % {high}", band.count, round(band.expected)])
        high = f"to {100 * band.low:.0f} %"
    if rows:
        held_out = f"the {len(run.graph.valid):,} held out for validation"
        caption = f"expected true: if the graph lacks about as many facts as {held_out}; if it lacks more, more are"
        if (correction := correction_for(run)) is not None:
            caption = f"expected true: by probabilities corrected by judgements of {correction.facts:,} facts"
        console.table(f"{len(facts):,} missing facts", ["probability", "facts", "expected true"], rows, caption)


def show_classification(title: str, top: int, classifier: Classification) -> None:
    """Metrics on test facts, and the most frequent relations."""
    rows = [[name.replace("_", " "), value] for name, value in classifier.metrics.items()]
    console.table(title, ["metric", f"{len(classifier.labels):,} test facts"], rows, classifier.source)
    relations = classifier.by_relation()
    rows = [
        [name, row["facts"], row["accuracy"], row["threshold"], "its own" if row["own_threshold"] else "shared"]
        for name, row in list(relations.items())[:top]
    ]
    more = f"{len(relations) - len(rows):,} more" if len(relations) > len(rows) else None
    console.table("Relations", ["relation", "facts", "accuracy", "threshold", ""], rows, more)


def show_labels(title: str, accuracy: float, facts: Sequence[LabelledFact]) -> None:
    rows = [[*fact.triple, "true" if fact.label else "false", percent(fact.probability)] for fact in facts]
    columns = ["head", "relation", "tail", "label", "probability"]
    console.table(title, columns, rows, f"accuracy on test facts: {accuracy:.1%}")


def show_calibration(calibration: Calibration) -> None:
    """For each slot and kind of question: how often answers of a given probability are true."""
    if not calibration.fits:
        console.say(f"'{calibration.graph}' has too few validation facts for probabilities", "yellow")
    for slot, fit in calibration.fits.items():
        for kind, judged in fit.reliability.items():
            rows = []
            for part in judged.bins:
                if part["facts"]:
                    interval, expected = f"{part['from']:.0%} to {part['to']:.0%}", part["probability"]
                    chance = 2 * (expected * (1 - expected) / part["facts"]) ** 0.5  # two standard errors
                    rows.append([interval, part["facts"], percent(expected), percent(part["true"]), f"± {chance:.1%}"])
            columns = ["probability", "answers", "mean probability", "true", "by chance"]
            title = f"Predicted {slot}s, questions {kind.text}, {calibration.graph}"
            console.table(title, columns, rows, reliability_caption(judged))


def reliability_caption(judged: Reliability) -> str:
    largest = "no bin has 50 answers" if judged.largest_error is None else f"largest error {judged.largest_error:.3f}"
    return (
        f"{judged.questions:,} questions of {judged.split}, {judged.true:,} true answers; {largest} (bins of 50 or more)\n"
        f"  best answers: mean probability {judged.best_probability:.1%}, true {judged.best_true:.1%}; "
        f"log loss {judged.log_loss:.4f} (base rate: {judged.base_log_loss:.4f})"
    )


def show_evaluation(title: str, by: str | None, evaluation: Evaluation) -> None:
    """Metrics with their protocol, of all queries and `by` parts."""

    estimate = evaluation.estimate
    rows = {f"{'' if estimate else 'all '}{len(evaluation.ranks):,} queries": evaluation.metrics}
    rows |= interval_rows(estimate)
    if by == "side":
        rows |= evaluation.by_side
    elif by == "relation":
        rows |= {f"{name} ({int(m['queries'])})": m for name, m in evaluation.by_relation.items()}
    elif by == "category":
        for category, sides in evaluation.by_category.items():
            rows |= {f"{category} {side} ({int(m['queries'])})": m for side, m in sides.items()}
    protocol = evaluation.describe()
    if evaluation.weights is not None:
        protocol += f"; weights {', '.join(f'{weight:.3g}' for weight in evaluation.weights)}"
    console.metrics_table(f"{title} on {evaluation.graph.name}", rows, protocol)
