"""How a training, its plan and its search look in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import harmonium
from harmonium.cli import console

if TYPE_CHECKING:
    from harmonium.config.settings import Config
    from harmonium.evaluation.metrics import Estimate
    from harmonium.run.run import Run
    from harmonium.run.selection import Selection
    from harmonium.run.updates import Update, UpdateRecord
    from harmonium.training.search.planning import Plan


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


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings in one line, such as: n3 0.1, composition distmult."""
    shown = {key: f"{value:.3g}" if isinstance(value, float) else str(value) for key, value in settings.items()}
    return ", ".join(f"{key.split('.')[-1]} {value}" for key, value in shown.items())


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
    show_model(harmonium.info(run)["run"])
    show_run(run)
    console.say(f"run folder: {run.path}")


def show_model(run: Mapping[str, Any]) -> None:
    """The model of a run in words, and how its settings were chosen; `run` is what `info` says of it."""
    model = run["model"]
    vectors = f"{model['entity_dim']:,} numbers for an entity, {model['relation_dim']:,} for a relation"
    form = "plain: no W"
    if model["harmony"]:
        form = f"W of rank {model['rank']:,}, lambda {model['faithfulness']:g}"
    console.say(f"{model['name']}: composition {model['composition']}; {vectors}; {form}", "bold")
    console.say(f"{run['parameters']:,} parameters; settings: {model['chosen']}")


def show_settings(config: Config, source: str, output_format: str) -> None:
    """Every setting with the value that a training would use, and the values that it may have."""
    from harmonium.config.settings import describe, flatten, to_toml

    values = flatten(config)
    rows = [
        {"key": row.key, "value": to_toml(values[row.key]), "values": row.values, "meaning": row.help}
        for row in describe()
    ]
    if output_format == "json":
        console.print_json(rows)
    elif output_format != "table":
        console.print_rows(rows, output_format)
    else:
        console.say(
            f"Settings of {source}, where --set gives no other; a search may choose some of them for the graph."
        )
        for row in rows:
            console.say(f"{row['key']} = {row['value'] or 'none'}", "bold")
            console.paragraph(f"values: {row['values']}", "dim")
            console.paragraph(row["meaning"])


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


def show_run(run: Run, others: Mapping[str, dict[str, float]] | None = None) -> None:
    """How the settings were chosen, how training went, and the final metrics, with those of `others` by name."""
    if run.selection:
        show_selection(run.selection)
    if run.history.harmony:
        console.say(f"  harmony: {run.history.harmony['summary']}")
    best = f"best at epoch {run.history.best_epoch} of {len(run.history.rows)}"
    console.say(f"trained {run.history.seconds:.1f} s, {best}; {run.history.stopped}")
    show_metrics(run, others)


def show_metrics(run: Run, others: Mapping[str, dict[str, float]] | None = None) -> None:
    """The metrics of a run, with those of `others` by name, and the updates that it has had."""
    if run.evaluation:
        rows = {"model": run.metrics, **interval_rows(run.evaluation.estimate)}
        rows |= others or {}
        rows |= {f"{name} baseline": metrics for name, metrics in run.evaluation.baselines.items()}
        console.metrics_table(f"Link prediction on {run.graph.name}", rows, run.evaluation.describe())
        if run.evaluation.warning:
            console.say(f"warning: {run.evaluation.warning}", "red")
    show_updates(run.updates)


def show_plan(plan: Plan) -> None:
    """Memory and time; where it does not fit, what to do."""
    work = f"{plan.epochs:,} epochs of {plan.steps:,} steps on {plan.device}"
    console.say(f"{plan.graph}: {plan.parameters:,} parameters, {work}", "bold")
    console.notes(plan.notes)
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


def show_updates(updates: tuple[Update, ...]) -> None:
    """The log of updates of a run, the oldest first."""
    if updates:
        console.say(
            "Updates since the training; `harmonium update RUN --undo` gives back the run before the last", "bold"
        )
    for number, update in enumerate(updates, start=1):
        entry = update.to_json()
        before = f"; MRR {entry['metrics_before']['mrr']:.3f} before" if "mrr" in entry["metrics_before"] else ""
        console.say(f"  {number}  {entry['made']}  {entry['change']}{before}")
        console.say(f"     {entry['command']}", "dim")


def show_update(record: UpdateRecord) -> None:
    """What an update changed."""
    rejected = record.rejected - record.removed
    facts = "fact" if record.added == 1 else "facts"
    counts = f"{record.added:,} {facts} added, {record.removed:,} removed, {max(0, rejected):,} more recorded as false"
    console.say(counts, "bold")
    for kind, names in (("entities", record.new_entities), ("relations", record.new_relations)):
        if names:
            console.say(f"new {kind}: {', '.join(names[:10])}{', ...' if len(names) > 10 else ''}")
    console.say(f"vectors moved: {record.moved_entities:,} entities, {record.moved_relations:,} relations")
    console.notes(record.notes)
