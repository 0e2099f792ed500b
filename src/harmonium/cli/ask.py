"""Commands that ask a run: predict, score, classify, calibrate, evaluate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import harmonium
from harmonium.cli import console, display, options
from harmonium.cli.commands import command
from harmonium.cli.options import argument, choice, flag, option, protocol
from harmonium.cli.reading import counting, reads_facts, reads_graph
from harmonium.errors import HarmoniumError
from harmonium.runtime.displayed import Line, Part

if TYPE_CHECKING:
    from harmonium.answers.prediction import Prediction
    from harmonium.run.run import Run
    from harmonium.runtime.frames import ResultList


def _answer_set(query: str, answers: Sequence[Prediction], coverage: float, top: int) -> Iterator[Part]:
    """The best answers of a set, and what it covers."""
    from harmonium.answers.prediction import answer_table

    yield answer_table(query, answers[:top])
    size = "1 answer" if len(answers) == 1 else f"{len(answers):,} answers"
    shown = f" ({top:,} shown)" if len(answers) > top else ""
    yield Line(f"  the answer set has {size}{shown}: where the graph lacks an answer to such a query,", "dim")
    yield Line(f"  the set holds it in {100 * coverage:g} % of cases", "dim")


def _calibrate(run: Run) -> None:
    """Fit the probabilities of a run, with a progress bar, on first use."""
    from harmonium.answers.open_run import open_run

    with console.bar("fitting probabilities, once") as progress:
        open_run(run).fact_calibration(progress=progress)


@command("Ask")
@reads_facts
def predict(
    run: options.RunFolder,
    head: Annotated[str | None, option("NAME", "Head entity.")] = None,
    relation: Annotated[str | None, option("NAME", "Relation.")] = None,
    tail: Annotated[str | None, option("NAME", "Tail entity.")] = None,
    queries: Annotated[
        Path | None,
        option("FILE", "Many queries: .tsv, .csv, .jsonl or .parquet of head, relation, tail, one of them '?'."),
    ] = None,
    out: options.OutFile = None,
    top: Annotated[int, option("N", "Number of answers per query.", min=1)] = 10,
    new_only: Annotated[bool, flag("Skip answers that are known facts.", "--new-only")] = False,
    typed: options.InferredTypes = True,
    among: Annotated[Path | None, option("FILE", "Only the candidates in this file, one name per line.")] = None,
    probability: Annotated[bool, flag("Give each answer a probability; fitted on first use.")] = True,
    coverage: Annotated[
        float | None,
        option("X", "The set of new answers that holds the missing one in this share of cases, such as 0.9."),
    ] = None,
    output_format: options.Format = "table",
    *,
    reading: dict[str, Any],
) -> None:
    """Answer a query with one of head, relation and tail missing, or a file of such queries.

    With one name alone: the most probable facts that the graph lacks, of a head, a tail or a relation.

    With --coverage 0.9: the set of new answers that holds the answer of a fact
    that the graph does not have yet nine times of ten, over all queries and
    over those of one relation; --top only limits how many are shown.

    Probabilities count every fact that is not in the graph as false;
    `harmonium calibrate RUN` shows how accurate they are.

    Example: harmonium predict runs/demo --head Switzerland --relation "official language"

    Example: harmonium predict runs/demo --head Switzerland

    Example: harmonium predict runs/demo --head Switzerland --relation borders --coverage 0.9

    Example: harmonium predict runs/demo --queries queries.tsv --out answers.parquet --new-only
    """
    from harmonium.answers.open_run import open_run
    from harmonium.answers.prediction import answer_table
    from harmonium.answers.query import ask

    run_ = harmonium.Run.load(run)
    wanted: dict[str, Any] = {"top": top, "new_only": new_only, "typed": typed, "among": among, "coverage": coverage}
    wanted["probability"] = probability
    if queries is not None and out is not None and not (head or relation or tail):
        if probability:
            _calibrate(run_)
        skipped = counting(reading)
        with console.bar("answering") as progress:
            count = harmonium.predict(run_, queries, out=out, progress=progress, **wanted, **reading)
        console.warnings(skipped.notes())
        console.say(f"{count:,} answers: {out}")
        if typed and not count:
            console.say("  each query has no candidate, or one answer that is known; --no-typed lists others", "dim")
        return
    if queries is not None or out is not None:
        raise HarmoniumError("give --queries FILE and --out FILE, or else one or two of --head, --relation and --tail")
    opened, query = open_run(run_), ask(run_.graph, head, relation, tail)
    with console.bar("fitting probabilities, once") as progress:
        answers = harmonium.predict(opened, head, relation, tail, progress=progress, **wanted)
    if len(query.open) == 2:
        title = f"Missing from {run_.graph.name}"
        console.output(answers, output_format, lambda facts: console.show(display.missing(title, facts)))
        return
    covered = {} if coverage is None else {"coverage": coverage, "size": len(answers)}
    is_restricted = typed and among is None and coverage is None

    def show(answers: ResultList[Prediction]) -> None:
        if coverage is not None:
            console.show(_answer_set(query.text, answers, coverage, top))
            return
        console.show([answer_table(query.text, answers)])
        if is_restricted and opened.is_answered(query.slot, query.triple):
            console.say("  such a query has one answer, and it is known; --no-typed lists other candidates", "dim")

    console.output(
        answers,
        output_format,
        show,
        to_json=lambda answers: {"query": query.text, **covered, "answers": answers},
    )


@command("Ask")
@reads_facts
def score(
    run: options.RunFolder,
    facts: Annotated[Path, argument("FILE", "File of facts: .tsv, .csv, .jsonl or .parquet.")],
    out: options.OutFile = None,
    side: Annotated[str, choice(("tail", "head"), "The slot for which each fact is rated as an answer.")] = "tail",
    output_format: options.Format = "table",
    *,
    reading: dict[str, Any],
) -> None:
    """Score given facts: score, probability, rank, and whether the fact is known.

    Rank and probability are those of the tail as an answer to
    (head, relation, ?) or, with --side head, of the head as an answer to
    (?, relation, tail).

    Example: harmonium score runs/demo facts.tsv --out scored.tsv
    """
    opened, skipped = harmonium.Run.load(run), counting(reading)
    _calibrate(opened)
    with console.bar("scoring") as progress:
        wanted: dict[str, Any] = {"side": side, "progress": progress, **reading}
        scored = harmonium.score(opened, facts, out=out, **wanted)
    console.warnings(skipped.notes())
    if isinstance(scored, int):
        console.say(f"{scored:,} facts: {out}")
    else:
        scored.title = f"{run} on {facts}"
        console.output(scored, output_format, lambda rows: console.show(rows.display()))


@command("Ask")
@reads_facts
def classify(
    run: options.RunFolder,
    labelled: Annotated[
        list[Path] | None,
        option(
            "PATH",
            "Folder with classification_valid.txt and classification_test.txt (head, relation, tail, 1 or -1), or, "
            "given twice, two such files; default: facts of the run and sampled negatives.",
        ),
    ] = None,
    data: Annotated[Path | None, option("FILE", "Facts to label: head, relation, tail per line.")] = None,
    seed: options.Seed = 0,
    top: options.Top = 20,
    plot: options.Figure = None,
    output_format: options.Format = "table",
    *,
    reading: dict[str, Any],
) -> None:
    """Classify facts as true or false: thresholds are fitted on validation facts and tested on test facts.

    Example: harmonium classify runs/demo --plot reliability.png
    """
    from harmonium.analysis import figures
    from harmonium.answers.classify import label_facts

    opened, skipped = harmonium.Run.load(run), counting(reading)
    classifier = harmonium.classify(opened, labelled, seed=seed, **reading)
    if plot:
        figures.classification_figure(classifier, plot)
    if data is not None:
        labels = label_facts(opened, data, classifier, **reading)
        console.warnings(skipped.notes())
        console.output(labels, output_format)
        if output_format == "table":
            console.say(f"  accuracy on test facts: {classifier.metrics['accuracy']:.1%}", "dim")
    else:
        console.warnings(skipped.notes())
        title = f"{run} on {classifier.graph}"
        console.output(classifier, output_format, lambda result: console.show(result.display(title, top)))


@command("Ask")
def calibrate(
    run: options.RunFolder,
    judgements: Annotated[
        Path | None,
        option("FILE", "Correct the probabilities of missing facts by the judgements of `harmonium review`."),
    ] = None,
    forget: Annotated[bool, flag("Drop what was learned from judgements.", "--forget-judgements")] = False,
    plot: options.Figure = None,
    output_format: options.Format = "table",
) -> None:
    """Show how true the probabilities are, with the test facts hidden, and how complete each relation is.

    With --judgements the probabilities of missing facts (`complete`, the
    explorer, the review) are corrected by what people accepted and rejected, if
    that makes facts that took no part in the fit more probable.

    Example: harmonium calibrate runs/demo --plot reliability.png

    Example: harmonium calibrate runs/demo --judgements runs/demo.review.sqlite
    """
    opened = harmonium.Run.load(run)
    if judgements is not None or forget:
        _correct(opened, judgements, forget, plot, output_format)
        return
    from harmonium.answers.calibration.hidden_facts import find_hidden

    with console.bar("listing facts without the test facts") as progress:
        hidden = find_hidden(opened, progress=progress)
    if plot:
        from harmonium.analysis.figures import calibration_figure

        calibration_figure(hidden, plot)
    console.output(hidden, output_format)


def _correct(run: Run, judgements: Path | None, forget: bool, plot: Path | None, output_format: str) -> None:
    """Learn from judgements, or forget what was learned."""
    from harmonium.answers.calibration.judgement_correction import keep_correction
    from harmonium.review.recalibration import recalibrate
    from harmonium.review.store import load_judgements

    if plot is not None or (judgements is not None and forget):
        raise HarmoniumError("give one of --judgements, --forget-judgements and --plot")
    if judgements is None:
        keep_correction(run, None)
        console.output(
            {"correction": None},
            output_format,
            lambda _: console.say("what was learned from judgements is dropped"),
            lambda result: [result],
        )
        return
    result = recalibrate(load_judgements(judgements), run.graph, run.fingerprint)
    keep_correction(run, result.correction)
    console.output(result, output_format, rows=lambda result: [result.to_json()])


def _parse_weights(text: str) -> str | list[float]:
    """Numbers separated by commas, or the word itself."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        return text


@command("Ask")
@reads_graph
def evaluate(
    runs: Annotated[list[Path], argument("RUN", "Run folder; several are ranked as a product of experts.")],
    data: Annotated[str | None, option("GRAPH", "Another graph with the same names; default: the run's.")] = None,
    split: options.Split = "test",
    candidates: Annotated[
        str,
        protocol(
            "candidates",
            "full: all entities; typed-train, typed-all: those seen in that slot of the relation in train, in any split.",
        ),
    ] = "full",
    ties: options.Ties = "realistic",
    side: Annotated[str, protocol("side", "Slot to predict.")] = "both",
    filtered: Annotated[bool, flag("Remove other known answers from the ranking.")] = True,
    unseen: Annotated[str, protocol("unseen", "Facts with entities unseen in training.")] = "keep",
    sample: Annotated[
        int | None, option("N", "Rank a random sample of this many facts: an estimate with 95 % intervals.", min=2)
    ] = None,
    by: Annotated[str | None, choice(("side", "relation", "category"), "Also show the metrics of each part.")] = None,
    chunk: Annotated[int | None, option("N", "Queries scored at once; changes memory, not results.", min=1)] = None,
    weights: Annotated[
        str, option("equal|learned|X,X", "Weights of several runs: equal, learned on validation facts, or numbers.")
    ] = "equal",
    rules: Annotated[
        bool, flag("Also learn path rules from the facts, and rank their product with the runs; takes minutes.")
    ] = False,
    output_format: options.Format = "table",
    *,
    reading: dict[str, Any],
) -> None:
    """Rank the true answers of a split among all candidates, and print metrics with their protocol.

    On a large graph --sample 2000 gives an estimate.

    Example: harmonium evaluate runs/demo --by relation

    Example: harmonium evaluate runs/one runs/two --weights learned

    Example: harmonium evaluate runs/demo --rules
    """
    with console.bar("learning path rules and ranking" if rules else "ranking") as progress:
        evaluation = harmonium.evaluate(
            runs, data, weights=_parse_weights(weights), rules=rules, chunk=chunk, progress=progress, split=split,
            candidates=candidates, ties=ties, side=side, filtered=filtered, unseen=unseen, sample=sample,
            **reading,
        )  # fmt: skip
    if data is not None:
        console.warnings(evaluation.graph.notes)
    experts = " x ".join([*map(str, runs), *["path rules"] * rules])
    console.output(evaluation, output_format, lambda result: console.show(result.display(experts, by)))
