"""A report of a run on one page: results, missing facts, probabilities, problems of the data, training, what was learned.

The page is one self-contained file, with figures as inline SVG; every name is escaped by the template, report.html.
"""

import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from harmonium.analysis import figures
from harmonium.analysis.doctor import rank_by_rules
from harmonium.analysis.figures import inline_svg
from harmonium.analysis.neighbours import guise_of
from harmonium.analysis.page import check_page, render_page, write_page
from harmonium.analysis.plain_comparison import PlainComparison, without_harmony
from harmonium.answers.audit.audit import kept_suspects
from harmonium.answers.audit.suspect import Audit, in_words
from harmonium.answers.calibration.hidden_facts import find_hidden
from harmonium.answers.classify import classify
from harmonium.answers.complete import complete, probability_bands
from harmonium.answers.open_run import open_run
from harmonium.answers.prediction import identifiers
from harmonium.config.settings import Config, EvaluateConfig, describe
from harmonium.data.checks.diagnosis import diagnose
from harmonium.data.graph import SPLITS, Graph
from harmonium.data.triples import Triples
from harmonium.errors import HarmoniumError
from harmonium.evaluation.baselines import Frequency
from harmonium.evaluation.evaluation import EvaluationSummary, Metrics, evaluate_scorer
from harmonium.evaluation.metrics import METRICS, Ranks
from harmonium.model.build import title
from harmonium.model.harmony import Harmony
from harmonium.model.scoring import Scorer
from harmonium.run import manifest as manifests
from harmonium.run.run import Run

MARK = "harmonium report</title>"  # in every report
MAX_RELATIONS = 40  # in one table; of more, the most frequent, the best and the worst are shown
FREQUENT, EXTREMES, MIN_QUERIES = 20, 10, 10  # how many of those; queries of a relation that may be best or worst
MISSING, SHOWN = 1000, 20  # missing facts that are counted by probability, and those that are listed
PLAIN = "without W: the same vectors, plain"
VECTORS = "vectors alone"
Progress = Callable[[int], None]
Rows = list[tuple[str, Metrics]]


def report(
    run: Run | str | Path,
    out: str | Path | None = None,
    *,
    limit: int = 4000,
    seed: int = 0,
    fact: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write one self-contained HTML page about a run; default: RUN/report.html.

    Ranks are of at most `limit` queries, a sample by `seed`; metrics are those of the run, of all queries.
    `fact` is the head, relation and tail whose neighbourhood is drawn (default: chosen from the training facts).

    >>> harmonium.report("runs/demo")
    """
    run = Run.of(run)
    if out is None and run.path is None:
        raise HarmoniumError("this run is not saved; say where its report goes: out=FILE.html")
    page = check_page(Path(out) if out is not None else Path(run.path or "") / "report.html", MARK)
    write_page(page, render(run, limit, seed, fact, progress))
    return page


def render(run: Run, limit: int, seed: int, fact: Sequence[str] | None = None, progress: Progress | None = None) -> str:
    """The page as text."""
    triples = [run.graph.triple(*fact)] if fact else choose_examples(run.graph)
    values: dict[str, Any] = {"run": run, "graph": run.graph, "title": title(run.config), "fact": fact}
    if run.evaluation:
        values |= _result_values(run, run.evaluation, limit, seed, progress)
    hidden = _or_reason(lambda: find_hidden(run, progress=progress))
    values |= _missing_values(run, progress) | {"hidden": hidden, "audit": _audit(run)}
    values |= {
        "figure_training": inline_svg("training", figures.training_figure, run.history, run.config.train.metric),
        "figure_guises": inline_svg("guises", figures.guises_figure, open_run(run), triples),
        "neighbourhoods": [guise_of(open_run(run), triple).neighbourhood() for triple in triples],
        "figure_spectrum": _or_reason(lambda: inline_svg("spectrum", figures.spectrum_figure, run.model.harmony)),
    }
    parts: dict[str, tuple[Any, Callable[..., object]]] = {  # what it shows, or why it cannot be shown
        "classification": (_or_reason(lambda: classify(run, seed=seed)), figures.classification_figure),
        "calibration": (hidden, figures.calibration_figure),
    }
    for name, (part, draw) in parts.items():
        if isinstance(part, str):
            values |= {name: None, f"figure_{name}": part}
        else:
            values |= {name: part.to_json(), f"figure_{name}": inline_svg(name, draw, part)}
    diagnosis = diagnose(run.graph)
    values["problems"] = [finding for finding in diagnosis.findings if finding.level != "ok"]
    if by_rules := rank_by_rules(run.graph, progress):
        row = {"queries": by_rules["queries"], **by_rules["metrics"]}
        values |= {"rules": [("rules alone", row)], "rules_protocol": by_rules["protocol"]}
    manifest: Any = {"made": None, "environment": run.environment, "files": {}}
    if run.path is not None:
        manifest = manifests.read(run.path)
    commands = _commands(run, limit, seed, triples)
    values |= {"diagnosis": diagnosis, "settings": _settings(run.config), "manifest": manifest, "commands": commands}
    return render_page("report.html", values | {"metric_names": METRICS, "splits": SPLITS})


def _or_reason(make: Callable[[], Any]) -> Any:
    """What a function makes, or the text of its error."""
    try:
        return make()
    except HarmoniumError as error:
        return str(error)


def _audit(run: Run) -> Audit | None:
    """The first suspects, where the graph was audited before; an audit takes as long as training."""
    found = kept_suspects(open_run(run))
    return None if found is None else in_words(open_run(run), found, SHOWN)


def _missing_values(run: Run, progress: Progress | None) -> dict[str, Any]:
    """The most probable missing facts, and how many are how probable."""
    missing = complete(run, top=MISSING, progress=progress)
    return {
        "missing": [(fact.names, fact) for fact in missing[:SHOWN]],
        "n_missing": len(missing),
        "bands": probability_bands(missing),
    }


def choose_examples(graph: Graph, count: int = 3) -> list[Triples]:
    """Facts of one head and relation whose tails many other heads share, but at most half of them."""
    rows = graph.train.to_rows().tolist()
    n_heads = Counter((relation, tail) for _, relation, tail in rows)
    heads: dict[int, set[int]] = defaultdict(set)
    for head, relation, _ in rows:
        heads[relation].add(head)
    tails: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for head, relation, tail in rows:
        if 2 * n_heads[relation, tail] <= len(heads[relation]):
            tails[head, relation].append((n_heads[relation, tail], tail))
    if not tails:
        return [graph.train[:1]]
    best = {pair: sorted(shared, reverse=True)[:count] for pair, shared in tails.items()}
    head, relation = max(best, key=lambda pair: (len(best[pair]), best[pair][-1][0]))
    return [Triples.from_rows([[head, relation, tail]]) for _, tail in best[head, relation]]


# Results --------------------------------------------------------------------------------------------------------------


def _result_values(
    run: Run, evaluation: EvaluationSummary, limit: int, seed: int, progress: Progress | None
) -> dict[str, Any]:
    """The metrics of a run as rows (name, metrics) of tables, and the distribution of its ranks."""
    ties, count = evaluation.protocol.ties, evaluation.queries
    ranks = _ranks(run, evaluation.protocol, limit, seed, progress)
    sample, baseline = ranks["frequency baseline"], evaluation.baselines.get("frequency")
    name = "frequency baseline" if baseline or len(sample) == count else "frequency baseline, of the sample"
    baseline = {"queries": count, **baseline} if baseline else {"queries": len(sample), **sample.metrics(ties)}
    metrics = {"queries": count, **evaluation.metrics}
    sides = [
        (f"asked for the {side}", {"queries": count // len(evaluation.by_side), **row})
        for side, row in evaluation.by_side.items()
    ]
    categories = [
        (f"{kind}, asked for the {side}", row)
        for kind, parts in evaluation.by_category.items()
        for side, row in parts.items()
    ]
    protocol = evaluation.describe()
    if evaluation.estimate is not None:  # a sample was ranked
        intervals = (f"{name} {low:.3f} to {high:.3f}" for name, (low, high) in evaluation.estimate.intervals.items())
        protocol += f" (95 %: {', '.join(intervals)})"
    return {
        "protocol": protocol,
        "metrics": metrics,
        "baseline": baseline,
        "rows": [(title(run.config), metrics), (name, baseline), *sides],
        "categories": categories,
        "relations": _relation_tables(list(evaluation.by_relation.items())),
        "ranks": ranks["model"],
        "rank_quantiles": ranks["model"].values(ties).quantile(torch.tensor([0.5, 0.9]).double()).tolist(),
        "figure_ranks": inline_svg("ranks", figures.ranks_figure, ranks, ties),
        **_comparison_values(ranks, ties, title(run.config)),
    }


def _comparison_values(ranks: dict[str, Ranks], ties: str, name: str) -> dict[str, Any]:
    """The model with W and without it, where it has one."""
    if PLAIN not in ranks:
        return {}
    comparison = PlainComparison.of(ranks.get(VECTORS, ranks["model"]), ranks[PLAIN], ties)
    both = {name: comparison.harmonic, PLAIN: comparison.plain}
    rows = [(label, {"queries": comparison.queries, **metrics}) for label, metrics in both.items()]
    return {"comparison": comparison, "comparison_rows": rows}


def _ranks(run: Run, protocol: EvaluateConfig, limit: int, seed: int, progress: Progress | None) -> dict[str, Ranks]:
    """Ranks of the same queries, at most `limit`: of the model, its vectors alone and without W, and frequency."""
    triples = run.graph.split(protocol.split)
    sides = 2 if protocol.side == "both" else 1
    if sides * len(triples) > limit:
        order = torch.randperm(len(triples), generator=torch.Generator().manual_seed(seed))
        triples = triples[order[: max(limit // sides, 1)]]
    scorers: dict[str, Scorer] = {"model": run.held_out_scorer(), "frequency baseline": Frequency(run.graph)}
    if run.grammar is not None:
        scorers[VECTORS] = run.model
    if isinstance(run.model.form, Harmony):
        scorers[PLAIN] = without_harmony(run.model)
    return {
        name: evaluate_scorer(scorer, run.graph, protocol, triples, progress=progress).ranks
        for name, scorer in scorers.items()
    }


def _relation_tables(relations: Rows) -> dict[str, Rows]:
    """By caption: all relations in one table or, of many, the most frequent, the best and the worst."""
    if len(relations) <= MAX_RELATIONS:
        return {"All relations, most frequent first": relations}
    frequent = [(name, row) for name, row in relations if row["queries"] >= MIN_QUERIES]
    by_mrr = sorted(frequent, key=lambda item: item[1]["mrr"])
    tables = {
        f"The {FREQUENT} most frequent of {len(relations):,} relations": relations[:FREQUENT],
        f"The {EXTREMES} best with at least {MIN_QUERIES} queries": by_mrr[::-1][:EXTREMES],
        f"The {EXTREMES} worst with at least {MIN_QUERIES} queries": by_mrr[:EXTREMES],
    }
    return {caption: rows for caption, rows in tables.items() if rows}


# Settings and commands -------------------------------------------------------------------------------------------------


def _settings(config: Config) -> list[dict[str, Any]]:
    """Every setting with its value, its default and its meaning."""
    values, group = {}, ""
    for line in config.to_toml().splitlines():
        if line.startswith("["):
            group = f"{line.strip('[]')}."
        elif " = " in line:
            key, _, value = line.partition(" = ")
            values[group + key] = value
    rows = []
    for row in describe():
        value = values.get(row.key, "")
        rows.append(row._asdict() | {"value": value, "changed": value != row.default})
    return rows


def _similar(folder: str, head: str, relation: str, tail: str) -> list[str]:
    return ["similar", folder, head, "--as", f"{relation}={tail}"]


def _commands(run: Run, limit: int, seed: int, triples: Sequence[Triples]) -> dict[str, list[str]]:
    """The commands that make the run and each number again."""
    folder = str(run.path or "RUN")
    module = type(run.model.composition).__module__
    plugin = [] if module.startswith("harmonium.") else ["--plugin", f"{module}.py"]
    overrides = []
    for row in _settings(run.config):
        if row["changed"] and row["key"] != "data":
            overrides += ["--set", f"{row['key']}={row['value'].strip(chr(34))}"]
    commands = {
        "train": [[*plugin, "train", "--data", run.config.data, *overrides, "--out", folder]],
        "doctor": [["doctor", run.config.data]],
        "classify": [["classify", folder, "--seed", str(seed)]],
        "calibrate": [["calibrate", folder]],
        "complete": [["complete", folder, "--top", str(MISSING)]],
        "similar": [_similar(folder, *identifiers(run.graph, t.to_rows()[0].tolist())) for t in triples],
    }
    if run.evaluation:
        defaults, chosen = vars(EvaluateConfig()), vars(run.evaluation.protocol)
        changed = {key: value for key, value in chosen.items() if value != defaults[key]}
        options = ["--no-filtered" if key == "filtered" else f"--{key}={value}" for key, value in changed.items()]
        commands["evaluate"] = [["evaluate", folder, *options]]
    return {name: [shlex.join(["harmonium", *parts]) for parts in lines] for name, lines in commands.items()}
