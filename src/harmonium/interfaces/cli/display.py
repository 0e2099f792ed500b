"""How results look in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from harmonium.interfaces.cli import console

if TYPE_CHECKING:
    from harmonium.analysis.density import Density
    from harmonium.analysis.doctor import Diagnosis
    from harmonium.analysis.dynamics import Dynamics
    from harmonium.analysis.explain import Explanation, Shift
    from harmonium.analysis.gain import Gain
    from harmonium.analysis.neighbours import EntityNeighbourhood, Neighbour, Neighbourhood
    from harmonium.answers.classify import Classification, LabelledFact
    from harmonium.answers.probability import Calibration
    from harmonium.answers.query import Answer
    from harmonium.answers.score import ScoredFact
    from harmonium.answers.slot_calibration import Reliability
    from harmonium.data.graph import Graph
    from harmonium.evaluation.evaluation import Evaluation
    from harmonium.evaluation.metrics import Estimate
    from harmonium.run.run import Run
    from harmonium.run.selection import Selection
    from harmonium.training.planning import Plan
    from harmonium.training.tuning import Tuning


def size(count: float) -> str:
    """Bytes as MB or GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"


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


def interval_rows(estimate: Estimate | None) -> dict[str, dict[str, float]]:
    """Lower and upper ends of confidence intervals, as rows of a table of metrics."""
    if estimate is None:
        return {}
    ends = {"  95 %: from": 0, "  to": 1}
    return {title: {metric: both[end] for metric, both in estimate.intervals.items()} for title, end in ends.items()}


def show_trained(run: Run) -> None:
    """The graph with its notes, how training went, and the folder."""
    console.say(repr(run.graph), "bold")
    console.notes(run.graph.notes)
    show_run(run)
    console.say(f"run folder: {run.path}")


def show_selection(selection: Selection) -> None:
    """What was tried and what was chosen, and why."""
    if selection.trials:
        rows = [
            [number, settings_text(trial.settings) or "the recipe's settings", trial.mrr, f"{trial.seconds:.1f} s"]
            for number, trial in enumerate(selection.trials, start=1)
        ]
        judged = (
            f"trainings with {settings_text(selection.trial_size)}, judged by {selection.held_out:,} held-out facts"
        )
        caption = f"{judged}; the search took {selection.seconds:.0f} s"
        console.table("Trials", ["", "settings", "mrr", "time"], rows, caption)
    console.say("Chosen", "bold")
    for reason in selection.reasons:
        console.say(f"  {reason}")


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings in one line, such as: n3 0.1, composition distmult."""
    shown = {key: f"{value:.3g}" if isinstance(value, float) else str(value) for key, value in settings.items()}
    return ", ".join(f"{key.split('.')[-1]} {value}" for key, value in shown.items())


def show_run(run: Run, others: Mapping[str, dict[str, float]] | None = None) -> None:
    """How the settings were chosen, how training went, and the final metrics, with those of `others` by name."""
    if run.selection:
        show_selection(run.selection)
    if run.history.harmony:
        console.say(f"  harmony: {run.history.harmony['summary']}")
    best = f"best at epoch {run.history.best_epoch} of {len(run.history.rows)}"
    console.say(f"trained {run.history.seconds:.1f} s, {best}; {run.history.stopped}")
    if run.evaluation:
        rows = {"model": run.metrics, **interval_rows(run.evaluation.estimate)}
        rows |= others or {}
        rows |= {f"{name} baseline": metrics for name, metrics in run.evaluation.baselines.items()}
        console.metrics_table(f"Link prediction on {run.graph.name}", rows, run.evaluation.describe())
        if run.evaluation.warning:
            console.say(f"warning: {run.evaluation.warning}", "red")


def show_plan(plan: Plan) -> None:
    """Memory and time; where it does not fit, what to do."""
    work = f"{plan.epochs:,} epochs of {plan.steps:,} steps on {plan.device}"
    console.say(f"{plan.graph}: {plan.parameters:,} parameters, {work}", "bold")
    memory = [[name, size(count)] for name, count in [*plan.memory.items(), ("total", plan.peak_memory)]]
    console.table("Memory", ["for", "about"], memory)
    if not plan.fits:
        console.say(
            "does not fit: lower model.entity_dim, set model.entity_dtype=bfloat16 and train.optimiser=row-adagrad, "
            "or use more memory or several machines (torchrun)",
            "red",
        )
        return
    times = [[name, duration(seconds)] for name, seconds in [*plan.seconds.items(), ("total", plan.total_seconds)]]
    per_step = f"a step {duration(plan.step_seconds)}, an epoch {duration(plan.steps * plan.step_seconds)}"
    console.table("Time", ["for", "about"], times, f"{per_step}; validation may stop training earlier")


def show_tuning(out: Path, study: Tuning) -> None:
    """The ten best trials, and the file with the best settings."""
    complete = sorted((t for t in study.trials if t["state"] == "complete"), key=lambda trial: -trial["value"])
    rows = []
    for trial in complete[:10]:
        settings = settings_text(trial["settings"])
        rows.append([trial["number"], trial["value"], settings])
    failed = sum("error" in trial for trial in study.trials)
    caption = f"{len(study.trials) - len(complete) - failed} more were stopped early, {failed} failed"
    columns = ["trial", f"valid {study.metric}", "settings"]
    console.table(f"The best of {len(study.trials)} trials", columns, rows, caption)
    console.say(f"best settings: {out}; train with them: harmonium train {out}")


def show_answers(query: str, answers: Sequence[Answer]) -> None:
    rows = [[a.rank, a.name, a.score, fact_status(a.known), "" if a.known else percent(a.probability)] for a in answers]
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


def count_notes(graph: Graph, kind: str) -> int:
    return sum(note.count for note in graph.notes if note.kind == kind)


def show_reading(source: str, graph: Graph) -> None:
    """What was read of a graph, and what was not."""
    n_facts = sum(map(len, graph.splits.values()))
    dropped = count_notes(graph, "repeated") + count_notes(graph, "skipped rows")
    counts = f"{n_facts:,} facts about {graph.n_entities:,} entities, {graph.n_relations:,} relations"
    console.say(f"{source}: {n_facts + dropped:,} rows, {counts}", "bold")
    console.notes(graph.notes)


def show_bands(run: Run, facts: Sequence[Mapping[str, Any]]) -> None:
    """How many facts are how probable, and how many of them should be true."""
    from harmonium.answers.complete import probability_bands

    bands, rows, high = probability_bands(facts), [], "or more"
    for band in bands:
        rows.append([f"{100 * band.low:.0f} % {high}", band.count, round(band.expected)])
        high = f"to {100 * band.low:.0f} %"
    if rows:
        held_out = f"the {len(run.graph.valid):,} held out for validation"
        caption = f"expected true: if the graph lacks about as many facts as {held_out}; if it lacks more, more are"
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
    from harmonium.evaluation.evaluation import describe_protocol

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
    protocol = describe_protocol(evaluation.protocol, estimate)
    console.metrics_table(f"{title} on {evaluation.graph.name}", rows, protocol)
    if evaluation.rounding is not None:
        check = evaluation.rounding
        low, high = check.metrics["mrr"]
        console.say(
            f"rounding: {check.uncertain:,} of {check.queries:,} queries have candidates that rounding cannot tell from "
            f"the true answer (at most {check.most:,} in one); their mrr is between {low:.6f} and {high:.6f}"
        )


def show_neighbourhood(neighbourhood: Neighbourhood | EntityNeighbourhood) -> None:
    """Nearest by composed vector beside nearest by token; true facts in green with a tick."""

    def cell(neighbour: Neighbour) -> Text:
        mark, style = ("✓ ", "green") if neighbour.true else ("  ", "")
        text = Text(f"{mark}{neighbour.name}  ", style=style)
        return text.append(f"{neighbour.distance:.3f} #{neighbour.rank:,g}", style="dim")

    entity = neighbourhood.triple[0 if neighbourhood.slot == "head" else 2]
    title = f"{entity} in ({', '.join(neighbourhood.triple)})"
    columns = neighbourhood.columns
    if not any(columns.values()):
        console.say(f"{title}: no other entity was seen in that slot; --no-typed compares with all entities")
        return
    rows = list(zip(*([cell(neighbour) for neighbour in near] for near in columns.values()), strict=True))
    hits = ", ".join(f"{sum(n.true for n in near)} of {len(near)} {name}" for name, near in columns.items())
    caption = f"✓ a known fact with that entity instead: {hits}\n  distance #rank as an answer; {_note(neighbourhood)}"
    console.table(title, list(columns), rows, caption)


def _note(neighbourhood: Neighbourhood | EntityNeighbourhood) -> str:
    from harmonium.analysis.neighbours import EntityNeighbourhood

    if isinstance(neighbourhood, EntityNeighbourhood):
        details = f"ridge {neighbourhood.ridge:g}, condition {neighbourhood.condition:.3g}"
        return f"the entity's token leaves {neighbourhood.residual:.0%} of mu - x uncomposed ({details})"
    return f"the triplet itself: #{neighbourhood.rank:,g}, {'true' if neighbourhood.true else 'not a known fact'}"


def show_explanation(explanation: Explanation) -> None:
    known = f"a known fact ({explanation.known})" if explanation.known else "not a known fact"
    ranks = ", ".join(f"#{rank:,g} as {side}" for side, rank in explanation.rank.items())
    console.say(", ".join(explanation.triple), "bold")
    console.say(f"score {explanation.score:.3f}, {ranks} among all entities, other known facts removed; {known}")
    console.notes(explanation.notes)
    console.say("")
    if explanation.shift:
        _show_harmony(explanation, explanation.shift)
        _show_directions(explanation)
    columns = ["training fact", "distance", "change if removed"]
    caption = "change of the score if the fact were removed: a local estimate, often too small"
    for title, reasons in (("Nearest", explanation.nearest), ("Most influential", explanation.reasons)):
        rows = [[" · ".join(reason.fact), reason.distance, f"{reason.effect:+.3f}"] for reason in reasons]
        console.table(f"{title} training facts", columns, rows, caption)


def _show_harmony(explanation: Explanation, shift: Shift) -> None:
    composed, token, empty = (explanation.harmony[state] for state in ("composed", "token", "empty"))
    rows = [
        [name, *(f"{value:,.3f}" for value in values), f"{values[1] - values[2]:+,.3f}"]
        for name, values in (
            ("core", (composed.core, token.core, empty.core)),
            ("faithfulness", (composed.faithfulness, token.faithfulness, empty.faithfulness)),
            ("total", (composed.total, token.total, empty.total)),
        )
    ]
    columns = ["", "composed x", "token", "token of x = 0", "difference of tokens"]
    parts = f"{shift.shared:.3f} shared by all facts, {shift.specific:.3f} specific to this one"
    caption = f"from x to its token: length {shift.length:.3f} ({parts}), harmony {shift.gain:+,.3f}"
    console.table("Harmony", columns, rows, caption)


def _show_directions(explanation: Explanation) -> None:
    rows = []
    for direction in explanation.directions:
        examples = [
            *(" · ".join(fact.name) for fact in direction.facts[:2]),
            "heads: " + ", ".join(str(entity.name) for entity in direction.heads[:3]),
            "tails: " + ", ".join(str(entity.name) for entity in direction.tails[:3]),
        ]
        parts = f"{direction.contribution:+.3f}", f"{direction.quadratic:+.2g}", f"{direction.linear:+.2g}"
        rows.append([*parts, "\n".join(examples)])
    names = ["contribution", "a (u.x)²", "(c.u) (u.x)", "training facts, heads and tails furthest along u"]
    caption = f"contribution: the sum of both terms; the rest of the score: {explanation.rest:+.3f}"
    console.table("Directions u of W with most effect on the score", names, rows, caption)


def show_dynamics(dynamics: Dynamics) -> None:
    """At most eleven steps from the composed vector to the token, denser at the start."""
    last = len(dynamics.hidden) - 1
    steps = sorted({*(round(last * (tenth / 10) ** 2) for tenth in range(10)), last})
    harmony, coherence, distance = dynamics.harmony, dynamics.coherence, dynamics.distance
    rows = [[step, f"{harmony[step]:.4f}", f"{coherence[step]:.4f}", f"{distance[step]:.2e}"] for step in steps]
    samples = f"mean of {len(dynamics.samples)} samples of p(h|x): {dynamics.sample_harmony.mean():.4f}"
    caption = f"harmony of the closed form: {dynamics.optimum:.4f}; {samples}"
    columns = ["step", "harmony", "core harmony", "distance to the token"]
    console.table(", ".join(dynamics.triple), columns, rows, caption)


def show_density(density: Density) -> None:
    parts = density.positives, density.negatives
    rows = [
        ["queries", *(f"{part.queries:,}" for part in parts)],
        ["by composed vector", *(f"{part.composed:.3f}" for part in parts)],
        ["by token", *(f"{part.token:.3f}" for part in parts)],
        ["change", *(f"{part.change.mean:+.3f} ± {part.change.standard_error:.3f}" for part in parts)],
        ["t, independent queries", *(f"{part.change.t:+.1f}" for part in parts)],
        ["95 % by triplet", *("{:+.3f} to {:+.3f}".format(*part.by_triplet) for part in parts)],
        ["95 % by relation", *("{:+.3f} to {:+.3f}".format(*part.by_relation) for part in parts)],
    ]
    candidates = "entities seen in that slot of the relation in any split" if density.typed else "all entities"
    console.table(
        f"Facts among the {density.count} nearest on {density.graph}",
        ["", "true triplets", "false triplets"],
        rows,
        f"heads and tails; candidates: {candidates}; ± standard error;\n"
        "  bootstrap intervals of the change, resampling triplets or relations",
    )


def show_gain(gain: Gain) -> None:
    """Correlation of gain and change of rank, under each choice of candidates."""
    titles = {"rank": "rank", "reciprocal_rank": "1/rank", "reciprocal_rank_changed": "1/rank, where it changed"}
    summary = gain.to_json()
    rows, changes = [], []
    for name, part in summary["candidates"].items():
        for kind, title in titles.items():
            correlation = part["spearman"][kind]
            rows.append([name, title, f"{correlation['rho']:+.4f}", f"{correlation['p']:.2g}", correlation["n"]])
        mrr = f"MRR {part['mrr_before']:.3f} -> {part['mrr_after']:.3f}"
        changes.append(f"{name} {mrr}, {part['unchanged']:.0%} unchanged")
    caption = f"from ranking by H(x, x) to ranking by H(mu, x): {'; '.join(changes)}"
    columns = ["candidates", "gain against change of", "Spearman", "p", "queries"]
    console.table(f"Harmony gain and rank change, {gain.graph} {gain.protocol.split}", columns, rows, caption)


def show_graph(graph: Mapping[str, Any], top: int) -> None:
    """Counts, and the most frequent relations with an example."""
    counts = ", ".join(f"{split} {count:,}" for split, count in graph["triples"].items())
    console.say(f"{graph['name']}: {graph['entities']:,} entities, {graph['relations']:,} relations; {counts}", "bold")
    unseen = ", ".join(f"{count:,} in {split}" for split, count in graph["unseen"].items())
    console.say(f"facts with an entity that is not in train: {unseen}")
    console.notes(graph["notes"])
    rows = [
        [relation["name"], relation["train"], relation["category"], " · ".join(relation["example"] or ())]
        for relation in graph["by_relation"][:top]
    ]
    more = graph["relations"] - len(rows)
    caption = f"{more:,} more" if more > 0 else None
    console.table("Relations", ["relation", "train", "category", "example"], rows, caption)


def show_diagnosis(diagnosis: Diagnosis, top: int) -> None:
    """The verdict, the findings, and what rules alone score."""
    from harmonium.evaluation.evaluation import describe_protocol

    colours = {"ok": "green", "warning": "yellow", "leaking": "red"}
    console.say(f"{diagnosis.graph}: {diagnosis.verdict}", f"bold {colours[diagnosis.verdict]}")
    console.say(f"  why: {diagnosis.reason}\n  what to do: {diagnosis.advice}\n")
    findings = [[Text(f.level, style=colours[f.level]), f.name, f.sentence] for f in diagnosis.findings]
    console.table("Findings", ["", "check", "result"], findings)
    if diagnosis.relations and top:
        more = len(diagnosis.relations) - top
        caption = "shared: of the first's pairs, or of either's where mutual; finds: test facts that follow"
        caption += f"; {more:,} more with --top" if more > 0 else ""
        console.table("Relations over the same entities", *diagnosis.relation_table(top), caption)
    if diagnosis.baseline:
        protocol = describe_protocol(diagnosis.baseline.protocol)
        console.metrics_table("Rules of one step alone", {"rules": diagnosis.baseline.metrics}, protocol)
    if diagnosis.cleaned:
        cleaned = diagnosis.cleaned
        rows = [[reason, *counts.values()] for reason, counts in cleaned["dropped"].items()]
        rows.append(["left", *cleaned["triples"].values()])
        caption = f"{len(cleaned['relations']):,} redundant relations dropped (--json lists them)"
        console.table(f"Cleaned copy in {cleaned['path']}", ["dropped", "train", "valid", "test"], rows, caption)
    console.notes(diagnosis.notes)
