"""Small graphs, scorers, models and runs for tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium.config.settings import Config, ModelConfig
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.data.vocabulary import Vocabulary
from harmonium.model.build import build_model
from harmonium.model.composition import Composition
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.harmony import Sum
from harmonium.model.scoring import Scorer, of_candidates
from harmonium.run.run import History, Run
from harmonium.training.constraints import learn_constraints
from harmonium.training.fit import fit


def make_graph(
    n_entities: int = 12, n_relations: int = 3, sizes: tuple[int, int, int] = (40, 8, 10), seed: int = 0
) -> Graph:
    """Entities e0.., relations r0.., distinct random triples in the splits."""
    cells = torch.randperm(n_entities * n_relations * n_entities, generator=torch.Generator().manual_seed(seed))
    cells = cells[: sum(sizes)]
    columns = [cells // (n_relations * n_entities), cells // n_entities % n_relations, cells % n_entities]
    splits = [Triples.from_rows(part) for part in torch.stack(columns, dim=1).split(list(sizes))]
    entities = Vocabulary([f"e{i}" for i in range(n_entities)], kind="entity")
    relations = Vocabulary([f"r{i}" for i in range(n_relations)], kind="relation")
    return Graph(entities, relations, *splits, name="random")


def family(generations: int = 40, seed: int = 0) -> Graph:
    """A graph with something to learn: `next` runs round a ring of entities, `before` is its reverse, `twin` pairs."""
    n = generations
    rows = [[i, 0, (i + 1) % n] for i in range(n)] + [[(i + 1) % n, 1, i] for i in range(n)]
    rows += [[i, 2, (i + n // 2) % n] for i in range(n)]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    parts = torch.tensor(rows)[order].split([len(rows) - 20, 10, 10])
    entities = Vocabulary([f"person {i}" for i in range(n)], kind="entity")
    relations = Vocabulary(["next", "before", "twin"], kind="relation")
    return Graph(entities, relations, *(Triples.from_rows(part) for part in parts), name="family")


def graph_of(
    train: str, valid: str = "", test: str = "", entities: str = "", labels: dict[str, str] | None = None
) -> Graph:
    """A graph from lines like "a likes b, b likes c"; `entities` may name more."""
    texts = {"train": train, "valid": valid, "test": test}
    facts = {s: [line.split() for line in text.split(",") if line.strip()] for s, text in texts.items()}
    everything = [fact for rows in facts.values() for fact in rows]
    names = list(dict.fromkeys([*(end for h, _, t in everything for end in (h, t)), *entities.split()]))
    relations = list(dict.fromkeys(r for _, r, _ in everything))
    ids = {s: [[names.index(h), relations.index(r), names.index(t)] for h, r, t in rows] for s, rows in facts.items()}
    splits = {s: Triples.from_rows(rows) for s, rows in ids.items()}
    shown = [labels.get(name, name) for name in names] if labels else None
    return Graph(Vocabulary(names, shown), Vocabulary(relations, kind="relation"), **splits, name="made")


def ladder(pattern: str, count: int = 10) -> str:
    """Facts for i = 0, 1, ... with {i} and {j} filled in."""
    return ", ".join(pattern.format(i=f"x{i}", j=f"y{i}") for i in range(count))


class PlainScorer(Scorer):
    """Subclasses give the scores of all candidates, which are counted by scoring one query."""

    def all_scores(self, slot: Slot, queries: Triples) -> Tensor:
        raise NotImplementedError

    def score_slot(self, slot: Slot, queries: Triples, candidates: Tensor | None = None) -> Tensor:
        return of_candidates(self.all_scores(slot, queries), candidates)

    def n_candidates(self, slot: Slot) -> int:
        return self.all_scores(slot, Triples.from_rows([[0, 0, 0]])).shape[1]


@dataclass
class TableScorer(PlainScorer):
    """Scores from a table."""

    heads: Tensor  # (n_relations, given tail, candidate)
    tails: Tensor  # (n_relations, given head, candidate)

    def all_scores(self, slot: Slot, queries: Triples) -> Tensor:
        table, given = (self.heads, queries.tail) if slot is Slot.HEAD else (self.tails, queries.head)
        return table[queries.relation, given]


def random_table(graph: Graph, levels: int, seed: int) -> TableScorer:
    """Random whole scores; few levels make many ties."""
    shape = (graph.n_relations, graph.n_entities, graph.n_entities)
    generator = torch.Generator().manual_seed(seed)
    return TableScorer(*(torch.randint(levels, shape, generator=generator).float() for _ in range(2)))


def random_model(graph: Graph, composition: str = "hole", entity_dim: int = 5, **settings: Any) -> GradientGraph:
    """A model in float64 whose W is not aligned with anything."""
    config = ModelConfig(composition, entity_dim, **settings)
    model = build_model(config, graph.n_entities, graph.n_relations, seed=1).double()
    if config.harmony:
        with torch.no_grad():
            model.harmony.free.add_(torch.randn(model.harmony.free.shape, generator=torch.Generator().manual_seed(0)))
    return model


CONFIGS = {
    "harmony": ModelConfig("hole", 6, faithfulness=2.0),
    "low rank": ModelConfig("distmult", 6, rank=2),
    "plain": ModelConfig("complex", 6, harmony=False),
    "reciprocal": ModelConfig("complex", 6, reciprocal=True),
}


def untrained(graph: Graph, config: ModelConfig = CONFIGS["harmony"]) -> GradientGraph:
    return build_model(config, graph.n_entities, graph.n_relations, seed=3)


def make_run(graph: Graph, model: GradientGraph) -> Run:
    """A run that was not trained and is in no folder."""
    return Run(Config(), graph, model, History())


def save_untrained(graph: Graph, config: ModelConfig, folder: Path) -> Path:
    """The folder of a run that was not trained."""
    return Run(Config(model=config), graph, untrained(graph, config), History()).save(folder)


FITTED = Config.read(
    None,
    [
        "model.composition=complex", "model.harmony=false", "model.normalise=false", "model.reciprocal=true",
        "model.entity_dim=16", "model.initial_spread=0.001", "train.loss=full", "train.optimiser=adagrad",
        "train.learning_rate=0.1", "train.n3=0.05", "train.batch_size=50", "train.epochs=60", "train.device=cpu",
    ],
)  # fmt: skip


def fitted(graph: Graph, train: Triples) -> GradientGraph:
    """A plain ComplEx, well trained on the given facts of a small graph."""
    model = build_model(FITTED.model, graph.n_entities, graph.n_relations, seed=0)
    fit(model, replace(graph, train=train), FITTED)
    return model.eval()


def fitted_run(graph: Graph, folder: Path) -> Run:
    """A run of such a model, in a folder."""
    Run(FITTED, graph, fitted(graph, graph.train), History()).save(folder)
    return Run.load(folder)


def countries() -> Graph:
    """Cities in countries, which have a language and a currency named after them; a fifth of the languages is held out."""
    n_countries, n_cities = 12, 72
    names_of_countries = [f"Country{chr(65 + i)}land" for i in range(n_countries)]
    cities = [f"City {i}" for i in range(n_cities)]
    languages = [f"Language {i}" for i in range(4)]
    currencies = [f"{name} crown" for name in names_of_countries]
    names = [*names_of_countries, *cities, *languages, *currencies]
    number = {name: index for index, name in enumerate(names)}
    located, speaks, currency, borders = range(4)
    rows = [[number[city], located, i % n_countries] for i, city in enumerate(cities)]
    rows += [[number[city], speaks, number[languages[i % n_countries % 4]]] for i, city in enumerate(cities)]
    rows += [[i, speaks, number[languages[i % 4]]] for i in range(n_countries)]
    rows += [[i, currency, number[currencies[i]]] for i in range(n_countries)]
    rows += [[i, borders, (i + 1) % n_countries] for i in range(n_countries)]
    rows += [[(i + 1) % n_countries, borders, i] for i in range(n_countries)]
    facts = Triples.from_rows(rows)
    held_out = torch.arange(len(facts)) % 5 == 2
    vocabularies = Vocabulary(names), Vocabulary(["located in", "language", "currency", "borders"])
    return Graph(*vocabularies, facts[~held_out], facts[held_out], facts[:0])


def small_vectors(graph: Graph) -> GradientGraph:
    """Untrained vectors, which say nothing."""
    model = GradientGraph(
        Composition.registry["distmult"](), graph.n_entities, graph.n_relations, 6, Sum(6), normalise=False
    )
    return model.initialise(generator=torch.Generator().manual_seed(1)).eval()


def run_with_constraints(graph: Graph | None = None) -> Run:
    """A run (default: on `countries`) whose vectors say nothing, and whose constraints are learned."""
    graph, config = graph or countries(), ModelConfig("distmult", 6, harmony=False)
    vectors = untrained(graph, config)
    run = Run(Config(model=config), graph, vectors, History())
    return replace(run, grammar=learn_constraints(vectors, graph))
