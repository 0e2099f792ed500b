"""A run on one page: what it reached, how it was trained, what it learned, and how to make every number again.

The page is one file that asks for nothing: figures are inline SVG in the colours of the page, light or dark, and every
name is escaped by the template, report.html.
"""

from __future__ import annotations

import json
import re
import shlex
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from harmonium import __version__, commands, figures
from harmonium.analysis.neighbours import neighbours
from harmonium.config import Config, EvaluateConfig, describe
from harmonium.doctor import diagnose
from harmonium.errors import HarmoniumError
from harmonium.evaluation import METRICS, Frequency, Ranks, evaluate
from harmonium.evaluation import describe as in_words
from harmonium.graph import SPLITS, Graph, Triples
from harmonium.reproduce import title
from harmonium.run import Run, environment

ALL_RELATIONS = 40  # up to so many are in one table; else the most frequent, the best and the worst
LISTED, EXTREMES, ENOUGH = 20, 10, 10  # how many of those, and the queries from which a relation may be best or worst
COLOURS = {figures.TRUE: "good", figures.OTHER: "faint", figures.SELF: "accent", figures.TEXT: "muted"}
STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a name may have dollars in it
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    **dict.fromkeys(["axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"], figures.TEXT),
}


def report(
    run: Run | str | Path,
    out: str | Path | None = None,
    limit: int = 4000,
    seed: int = 0,
    fact: Sequence[str] | None = None,
    watch: Callable[[int], None] | None = None,
) -> Path:
    """Write one self-contained HTML page about a run, RUN/report.html when `out` is left out.

    Ranks and harmony gain are of at most `limit` queries, a sample by `seed`; the metrics are the run's own, of all.
    `fact` is the head, relation and tail whose neighbourhood is drawn; one is found when left out.

    >>> harmonium.report("runs/demo")
    """
    run = commands.open_run(run)
    if out is None and run.path is None:
        raise HarmoniumError("this run is in no folder yet; say where its report goes: out=FILE.html")
    out = Path(out) if out is not None else run.path / "report.html"
    if out.suffix not in (".html", ".htm"):
        raise HarmoniumError(f"--out {out}: a report ends in .html")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(render(run, limit, seed, fact, watch), encoding="utf-8")
    except OSError as error:
        raise HarmoniumError(f"{out}: cannot be written ({error.strerror}); choose another --out") from error
    return out


def render(
    run: Run,
    limit: int,
    seed: int,
    fact: Sequence[str] | None = None,
    watch: Callable[[int], None] | None = None,
) -> str:
    """The page as text."""
    from jinja2 import Environment, PackageLoader

    triples = [run.graph.triple(*fact)] if fact else example(run.graph)
    shown: dict[str, Any] = {"run": run, "graph": run.graph, "title": title(run.config), "fact": fact}
    if run.metrics:
        protocol = EvaluateConfig(**{k: v for k, v in run.metrics["protocol"].items() if k != "filter"})
        ranks = _ranks(run, protocol, limit, seed, watch)
        shown |= {"protocol": _in_words(run, protocol), **_metrics(run, ranks, protocol.ties), "ranks": ranks["model"]}
        shown["figure_ranks"] = svg("ranks", figures.ranks_figure, ranks, protocol.ties)
        shown["reach"] = ranks["model"].values(protocol.ties).quantile(torch.tensor([0.5, 0.9]).double()).tolist()
    shown["figure_training"] = svg("training", figures.training_figure, run.history, run.config.train.metric)
    shown["figure_guises"] = svg("guises", figures.guises_figure, run.model, run.graph, triples)
    shown["neighbourhoods"] = [neighbours(run.model, run.graph, triple) for triple in triples]
    shown["figure_spectrum"] = _or_why(lambda: svg("spectrum", figures.spectrum_figure, run.model.harmony))
    gain = _or_why(lambda: commands.gain(run, limit=limit, seed=seed, watch=watch))
    known = _or_why(lambda: commands.classify(run, seed=seed))
    drawn = (("gain", gain, figures.gain_figure), ("reliability", known, figures.classification_figure))
    for name, found, draw in drawn:
        if isinstance(found, str):
            shown |= {f"figure_{name}": found, name: None}
        else:
            shown |= {f"figure_{name}": svg(name, draw, found), name: found.to_json()}
    shown["diagnosis"] = found = diagnose(run.graph, watch)
    if found.baseline:
        row = {"queries": len(found.baseline.ranks), **found.baseline.metrics}
        shown |= {"rules": [("rules alone", row)], "rules_protocol": in_words(found.baseline.protocol)}
    shown |= {
        "settings": _settings(run.config),
        "record": _record(run),
        "commands": _commands(run, limit, seed, triples),
    }
    page = Environment(loader=PackageLoader("harmonium", ""), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page.filters |= {"metric": _metric, "isfigure": lambda found: hasattr(found, "__html__")}
    return page.get_template("report.html").render(shown, metric_names=METRICS, splits=SPLITS, version=__version__)


def svg(key: str, draw: Callable[..., Path], *about: Any) -> Any:
    """What a function of figures.py draws, as inline SVG: colours of the page, text as text, ids under a key of its own."""
    import matplotlib
    from markupsafe import Markup

    def of_the_page(tag: re.Match[str]) -> str:
        text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{key}-", tag[0])
        for colour, name in COLOURS.items():
            text = text.replace(colour, f"var(--{name})")
        return text.replace("#000000", "currentColor")

    with TemporaryDirectory() as folder, warnings.catch_warnings(), torch.random.fork_rng([]):
        warnings.filterwarnings("ignore", "Glyph")  # the browser has the fonts that matplotlib lacks
        torch.manual_seed(0)  # of principal directions
        file = Path(folder) / "figure.svg"
        with matplotlib.rc_context({**STYLE, "svg.hashsalt": key}):
            draw(*about, file)
        text = file.read_text(encoding="utf-8")
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    return Markup(re.sub(r"<[^>]+>", of_the_page, text))  # in its text < and > are escaped


def example(graph: Graph, count: int = 3) -> list[Triples]:
    """Facts of one head and relation to look at: the tails that most heads share, though not over half of them."""
    rows = graph.train.rows().tolist()
    shared, heads, tails = Counter((r, t) for _, r, t in rows), defaultdict(set), defaultdict(list)
    for head, relation, _ in rows:
        heads[relation].add(head)
    for head, relation, tail in rows:
        if 2 * shared[relation, tail] <= len(heads[relation]):
            tails[head, relation].append((shared[relation, tail], tail))
    if not tails:
        return [graph.train[:1]]
    best = {pair: sorted(found, reverse=True)[:count] for pair, found in tails.items()}
    head, relation = max(best, key=lambda pair: (len(best[pair]), best[pair][-1][0]))
    return [Triples.from_rows([[head, relation, tail]]) for _, tail in best[head, relation]]


def _or_why(make: Callable[[], Any]) -> Any:
    """What a function makes, or the reason why it cannot."""
    try:
        return make()
    except HarmoniumError as error:
        return str(error)


def _ids(graph: Graph, triple: Triples) -> list[str]:
    """Head, relation and tail as what is surely understood again."""
    head, relation, tail = triple.rows().tolist()[0]
    return [graph.entities.ids[head], graph.relations.ids[relation], graph.entities.ids[tail]]


def _ranks(
    run: Run, protocol: EvaluateConfig, limit: int, seed: int, watch: Callable[[int], None] | None
) -> dict[str, Ranks]:
    """Ranks of the model and of the frequency baseline on the same queries, at most `limit`."""
    triples = run.graph.split(protocol.split)
    sides = 2 if protocol.side == "both" else 1
    if sides * len(triples) > limit:
        chosen = torch.randperm(len(triples), generator=torch.Generator().manual_seed(seed))[: max(limit // sides, 1)]
        triples = triples[chosen]
    scorers = {"model": run.model, "frequency baseline": Frequency(run.graph)}
    return {name: evaluate(scorer, run.graph, protocol, triples, watch=watch).ranks for name, scorer in scorers.items()}


def _in_words(run: Run, protocol: EvaluateConfig) -> str:
    """The protocol, and the intervals of its metrics where a sample was ranked."""
    estimate = run.metrics.get("estimate", {})
    intervals = [f"{name} {low:.3f} to {high:.3f}" for name, (low, high) in estimate.get("intervals", {}).items()]
    return in_words(protocol, estimate.get("of")) + (f" (95 %: {', '.join(intervals)})" if intervals else "")


def _metrics(run: Run, ranks: dict[str, Ranks], ties: str) -> dict[str, Any]:
    """The run's own metrics as rows of tables: name, queries, metrics."""
    metrics, count = run.metrics, run.metrics["queries"]
    baseline = metrics.get("frequency_baseline")
    sample = ranks["frequency baseline"]
    name = "frequency baseline" if baseline or len(sample) == count else "frequency baseline, of the sample"
    baseline = {"queries": count, **baseline} if baseline else {"queries": len(sample), **sample.metrics(ties)}
    sides = [
        (f"asked for the {side}", {"queries": count // len(metrics["by_side"]), **row})
        for side, row in metrics["by_side"].items()
    ]
    relations = list(metrics["by_relation"].items())
    many = [(name, row) for name, row in relations if row["queries"] >= ENOUGH]
    order = sorted(many, key=lambda row: row[1]["mrr"])
    tables = {"All relations, most frequent first": relations}
    if len(relations) > ALL_RELATIONS:
        tables = {
            f"The {LISTED} most frequent of {len(relations):,} relations": relations[:LISTED],
            f"The {EXTREMES} best with at least {ENOUGH} queries": order[::-1][:EXTREMES],
            f"The {EXTREMES} worst with at least {ENOUGH} queries": order[:EXTREMES],
        }
    return {
        "metrics": {"queries": count, **metrics["metrics"]},
        "baseline": baseline,
        "rows": [(title(run.config), {"queries": count, **metrics["metrics"]}), (name, baseline), *sides],
        "categories": [
            (f"{kind}, asked for the {side}", row)
            for kind, parts in metrics["by_category"].items()
            for side, row in parts.items()
        ],
        "relations": {caption: rows for caption, rows in tables.items() if rows},
    }


def _metric(value: float, name: str) -> str:
    """Mean ranks with one decimal, shares with three."""
    if value != value:
        return "–"
    return f"{value:,.{ {'queries': 0, 'mr': 1}.get(name, 3) }f}".replace("-", "−")


def _settings(config: Config) -> list[dict[str, Any]]:
    """Every setting with its value, its default and what it means."""
    values, group = {}, ""
    for line in config.to_toml().splitlines():
        key, equals, value = line.partition(" = ")
        group = f"{line.strip('[]')}." if line.startswith("[") else group
        values |= {group + key: value} if equals else {}
    return [
        {"key": key, "value": value, "default": default, "help": text, "changed": value != default}
        for key, default, text in describe()
        for value in [values.get(key, "")]
    ]


def _record(run: Run) -> dict[str, Any]:
    """When and where the run was made, and the checksums of its files."""
    if run.path is None:
        return {"made": None, "environment": environment(), "files": {}}
    return json.loads((run.path / "run.json").read_bytes())


def _commands(run: Run, limit: int, seed: int, triples: Sequence[Triples]) -> dict[str, list[str]]:
    """What to type to make the run and each number again."""
    folder = str(run.path or "RUN")
    module = type(run.model.composition).__module__
    plugin = [] if module.startswith("harmonium.") else ["--plugin", f"{module}.py"]
    changed = [row for row in _settings(run.config) if row["changed"] and row["key"] != "data"]
    sets = [part for row in changed for part in ("--set", f"{row['key']}={row['value'].strip(chr(34))}")]
    lines = {
        "train": [[*plugin, "train", "--data", run.config.data, *sets, "--out", folder]],
        "gain": [["gain", folder, "--limit", str(limit), "--seed", str(seed)]],
        "doctor": [["doctor", run.config.data]],
        "classify": [["classify", folder, "--seed", str(seed)]],
        "neighbours": [["neighbours", folder, *_ids(run.graph, triple)] for triple in triples],
    }
    if run.metrics:
        usual, chosen = vars(EvaluateConfig()), run.metrics["protocol"]
        told = {key: chosen[key] for key in usual if chosen[key] != usual[key]}
        options = [f"--{key}={value}" if key != "filtered" else "--no-filtered" for key, value in told.items()]
        lines["evaluate"] = [["evaluate", folder, *options]]
    return {name: [shlex.join(["harmonium", *parts]) for parts in several] for name, several in lines.items()}
