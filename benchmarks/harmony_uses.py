"""Uses of harmony, each measured per query beside its controls: what benchmarks/harmony_map.py runs for one seed.

An experiment returns values per query by family and variant. The family "harmony" is the harmonic model, the others are its
controls; variants are settings, of which validation chooses one per family (harmony_map.py).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from harmonium.answers.classify import classify_triples, labelled_split
from harmonium.config.settings import Config, EvaluateConfig
from harmonium.data.graph import Graph
from harmonium.data.triples import Slot, Triples
from harmonium.evaluation.candidates import chunk_size, select_block
from harmonium.evaluation.evaluation import evaluate_scorer
from harmonium.kernels.quadratic_form import QuadraticForm
from harmonium.model.build import build_model
from harmonium.model.gradient_graph import GradientGraph
from harmonium.model.scoring import EmbeddingScorer
from harmonium.runtime.device import pick_device
from harmonium.training.fit import fit
from harmonium.training.harmony_fit import FOLDS, SPREADS, Folds, fit_harmony, sample_facts, validation_queries
from harmonium.training.negatives import SIDES
from harmonium.training.quadratic_regression import Queries, fit_quadratic_parts, fit_scale, minimise

SPLITS = ("valid", "test")
RANKS = (1, 4, 8)  # of W fitted to validation likelihood
BIAS_SPREADS = (0.003, 0.01, 0.03, 0.1)  # of the prior on a coordinate of b, in nats
RARE = 3  # training facts that an entity has at most
STEPS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # 1 / lambda of an entity's state, in units of vector lengths
N3 = (0.002, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5)
JOINT_RANK = 4

Values = dict[str, Tensor]  # split -> (queries,)
Families = dict[str, dict[str, Values]]  # family -> variant -> values


@dataclass(frozen=True)
class Measured:
    """One measure of an experiment, for one seed."""

    measure: str
    relation: Values  # the relation of each query
    families: Families


@dataclass(frozen=True)
class Setup:
    """A graph, a recipe and a seed; the plain model is trained when it is first needed."""

    graph: Graph
    overrides: Sequence[str]
    seed: int
    device: str
    variants: dict[str, set[str]] | None = None  # by family, those to measure; None: all
    types: Path | None = None  # file of the types of entities

    def wants(self, family: str, variant: str) -> bool:
        return self.variants is None or variant in self.variants.get(family, set())

    def config(self, recipe: str, *more: str) -> Config:
        return Config.read(recipe, [*self.overrides, *more, f"train.seed={self.seed}", f"train.device={self.device}"])

    def train(self, recipe: str, *more: str, graph: Graph | None = None) -> GradientGraph:
        """A model trained on the facts of a graph, default: this one."""
        graph, config = graph or self.graph, self.config(recipe, *more)
        model = build_model(config.model, graph.n_entities, graph.n_relations, self.seed)
        fit(model, graph, config)
        return model.requires_grad_(False)

    @cached_property
    def plain(self) -> GradientGraph:
        return self.train("plain")

    def reciprocal_ranks(self, model: GradientGraph | EmbeddingScorer) -> Values:
        """(2 * facts,) for each split: filtered, all entities, realistic ties; heads, then tails."""
        device = pick_device(self.device)
        protocols = {split: EvaluateConfig(split=split) for split in SPLITS}
        ranks = {split: evaluate_scorer(model, self.graph, protocols[split], device=device).ranks for split in SPLITS}
        return {split: 1 / part.values() for split, part in ranks.items()}

    @property
    def relations(self) -> Values:
        """The relation of each query of `reciprocal_ranks`."""
        return {split: self.graph.splits[split].relation.repeat(2) for split in SPLITS}


Experiment = Callable[[Setup], list[Measured]]


# Likelihood of held-out facts: W fitted to validation facts, and controls with W = 0 fitted to the same facts ------------


def likelihood(setup: Setup) -> list[Measured]:
    """Log-likelihood of test answers, and their ranks.

    The controls are the plain score with its own temperature; with a temperature and a bias b; and with a curve,
    s z + a z^2 of the plain score z, which changes no order of positive scores. Cross-validation over validation facts
    chooses the prior, and the rank of W, in each family.
    """
    model, graph = setup.plain, setup.graph
    facts = sample_facts(model, graph, 0)
    queries, folds = validation_queries(model, graph, facts, 0), Folds.draw(facts, graph.n_entities, 0)
    vector, scorer = model.form.fold().vector, model.prepare()
    fits: dict[str, Callable[[Queries], dict[str, QuadraticForm]]] = {
        "harmony": lambda part: fit_matrices(part, vector),
        "temperature": lambda part: {
            "temperature": QuadraticForm(None, fit_scale(part) * vector, vector.new_zeros(()))
        },
        "bias": lambda part: fit_biases(part, vector),
        "curve": lambda part: {"curve": fit_curve(part, vector)},
    }
    nats, ranks = {}, {}
    for family, fit_family in fits.items():
        held_out = cross_validate(queries, folds, fit_family)
        best = max(held_out, key=lambda name: held_out[name].mean().item())
        form = replace(fit_family(queries)[best], constant=scorer.form.constant)
        fitted = replace(scorer, form=form)
        nats[family] = {"chosen by cross-validation": {"valid": held_out[best], "test": log_likelihood(fitted, graph)}}
        ranks[family] = {"chosen by cross-validation": setup.reciprocal_ranks(fitted)}
        print(f"{family}: {best}, {held_out[best].mean():.4f} nats held out", flush=True)
    relation = {"valid": facts.relation.repeat(2), "test": graph.test.relation.repeat(2)}
    return [Measured("log-likelihood", relation, nats), Measured("reciprocal rank", setup.relations, ranks)]


def cross_validate(queries: Queries, folds: Folds, fit_family: Callable[[Queries], dict[str, QuadraticForm]]) -> Values:
    """(2 * facts,) for each variant: the log-likelihood by the fit that did not see the answer's entity."""
    device, values = queries.linear.device, {}
    for fold in range(FOLDS):
        forms = fit_family(queries[folds.fitted(fold).repeat(2).to(device)])
        asked = folds.answers(fold).flatten()
        unseen = queries[asked.to(device)]
        for name, form in forms.items():
            values.setdefault(name, torch.empty(len(queries)))[asked] = unseen.log_likelihood(
                form(unseen.composed)
            ).cpu()
    return values


def fit_matrices(queries: Queries, vector: Tensor) -> dict[str, QuadraticForm]:
    """W of each rank, with each prior."""
    forms = {}
    for rank in RANKS:
        parts = fit_quadratic_parts(queries, rank, SPREADS, torch.Generator().manual_seed(0))
        forms |= {f"rank {rank}, spread {s}": part.form(vector) for s, part in zip(SPREADS, parts, strict=True)}
    return forms


def fit_biases(queries: Queries, vector: Tensor) -> dict[str, QuadraticForm]:
    """s c + g, with a Gaussian prior on the coordinates of g: a harmony with W = 0 and its own b."""
    scale, unit, forms = fit_scale(queries), queries.composed.square().mean().sqrt(), {}
    for spread in BIAS_SPREADS:

        def loss(log_scale: Tensor, shift: Tensor, spread: float = spread) -> Tensor:
            prior = (shift / spread).square().sum() + (log_scale - math.log(scale)).square()
            scores = log_scale.exp() * queries.linear + queries.composed @ (shift / unit)
            return prior / (2 * len(queries)) - queries.log_likelihood(scores).mean()

        log_scale, shift = minimise(loss, vector.new_tensor(math.log(scale)), torch.zeros_like(vector))
        forms[f"spread {spread}"] = QuadraticForm(None, log_scale.exp() * vector + shift / unit, vector.new_zeros(()))
    return forms


def fit_curve(queries: Queries, vector: Tensor) -> QuadraticForm:
    """s z + a z^2 of the plain score z = c'x: W = w c c', of rank one."""
    scale, unit = fit_scale(queries), queries.linear.std()

    def loss(log_scale: Tensor, bend: Tensor) -> Tensor:
        scores = log_scale.exp() * queries.linear + bend * (queries.linear / unit).square()
        prior = bend.square() + (log_scale - math.log(scale)).square()
        return prior / (2 * len(queries)) - queries.log_likelihood(scores).mean()

    log_scale, bend = minimise(loss, vector.new_tensor(math.log(scale)), vector.new_zeros(()))
    core = (bend / unit.square()).reshape(1, 1)
    return QuadraticForm(core, log_scale.exp() * vector, vector.new_zeros(()), vector[:, None])


@torch.no_grad()
def log_likelihood(scorer: EmbeddingScorer, graph: Graph) -> Tensor:
    """(2 * facts,): of test answers among all entities that are not other known answers; heads, then tails."""
    parts: list[Tensor] = []
    facts = graph.test.to(scorer.relations.device)
    for slot in SIDES:
        known = graph.known_answers(slot, queries=graph.test).to(facts.head.device)
        for queries in facts.chunks(chunk_size(scorer, slot)):
            parts.append(_log_likelihood(scorer, slot, queries, known.of(queries)).cpu())
    return torch.cat(parts)


def _log_likelihood(scorer: EmbeddingScorer, slot: Slot, queries: Triples, known: tuple[Tensor, Tensor]) -> Tensor:
    rows = torch.arange(len(queries), device=queries.head.device)
    total = torch.full((len(queries),), -torch.inf, dtype=torch.float64, device=rows.device)
    truth = torch.zeros_like(total)
    for start, block in scorer.score_blocks(slot, queries):
        scores = block.double()
        true_cells = select_block((rows, queries[slot]), start, scores.shape[1])
        true_scores = scores[true_cells]
        truth[true_cells[0]] = true_scores
        scores[select_block(known, start, scores.shape[1])] = -torch.inf
        scores[true_cells] = true_scores
        total = total.logaddexp(scores.logsumexp(1))
    return truth - total


# Triplet classification --------------------------------------------------------------------------------------------------


def classification(setup: Setup) -> list[Measured]:
    """Whether each test fact and each false one is classified correctly, with W fitted to validation likelihood or none."""
    graph, generator = setup.graph, torch.Generator().manual_seed(0)
    valid, test = (labelled_split(graph, split, generator) for split in SPLITS)
    plain = copy.deepcopy(setup.plain).cpu()
    harmonic = copy.deepcopy(plain)
    harmonic.form = fit_harmony(setup.plain, graph, setup.config("plain")).form.cpu()
    families: Families = {}
    for family, model in (("harmony", harmonic), ("plain", plain)):
        result = classify_triples(torch.no_grad()(model.score), graph, valid, test)
        correct = (result.margins >= 0) == result.labels
        families[family] = {"thresholds by relation": {"test": correct.double()}}
    return [Measured("accuracy", {"test": result.relation}, families)]


# Rare entities: the state of an entity as the optimum over all its facts ------------------------------------------------


def rare(setup: Setup) -> list[Measured]:
    """Reciprocal ranks with the states of entities instead of their vectors.

    The state of an entity maximises the harmony of its training facts: e + (1 / lambda) mean of T'c, in closed form, for
    a plain form. The control `longer` lengthens the vectors of the same entities: rare ones gain by that alone.
    """
    model, graph = copy.deepcopy(setup.plain), setup.graph
    vectors, pull, count = model.entity.detach().clone(), entity_pull(setup.plain, graph), entity_degree(graph)
    is_rare = ((count > 0) & (count <= RARE)).to(vectors.device)
    unit = vectors.norm(dim=1).median() / pull.norm(dim=1)[count > 0].median()
    every, rarely = torch.ones_like(is_rare), is_rare

    def evaluate(changed: Tensor, replaced: Tensor) -> Values:
        model.entity.data.copy_(torch.where(replaced[:, None], changed, vectors))
        return setup.reciprocal_ranks(model)

    families: Families = {"harmony": {}, "longer": {}, "plain": {"plain": evaluate(vectors, every)}}
    for step in STEPS:
        for name, replaced in (("rare entities", rarely), ("all entities", every)):
            families["harmony"][f"{name}, step {step}"] = evaluate(vectors + step * unit * pull, replaced)
        families["longer"][f"step {step}"] = evaluate((1 + step) * vectors, rarely)
    measured = [Measured("reciprocal rank, all facts", setup.relations, families)]
    is_asked = {split: _mentions(graph.splits[split], is_rare.cpu()).repeat(2) for split in SPLITS}
    if all(mask.any() for mask in is_asked.values()):
        selected = {
            family: {name: {s: values[s][is_asked[s]] for s in SPLITS} for name, values in variants.items()}
            for family, variants in families.items()
        }
        asked = {split: setup.relations[split][mask] for split, mask in is_asked.items()}
        measured.append(Measured("reciprocal rank, facts with a rare entity", asked, selected))
    return measured


def _mentions(facts: Triples, entities: Tensor) -> Tensor:
    return entities[facts.head] | entities[facts.tail]


def entity_degree(graph: Graph) -> Tensor:
    """(n_entities,): training facts of each entity."""
    return torch.cat([graph.train.head, graph.train.tail]).bincount(minlength=graph.n_entities)


@torch.no_grad()
def entity_pull(model: GradientGraph, graph: Graph) -> Tensor:
    """(n_entities, dim): the mean of T'c over the training facts of each entity, T its slot map in the fact."""
    scorer, facts = model.prepare(), graph.train.to(model.relation.device)
    total = torch.zeros_like(scorer.entities)
    for slot in SIDES:
        for queries in facts.chunks(4096):
            vectors = scorer.slot_map(slot, queries).transpose(scorer.form.vector.expand(len(queries), -1))
            total.index_add_(0, queries[slot], vectors)
    return total / entity_degree(graph).clamp(min=1).to(total)[:, None]


# Joint training of W in small models, and with noise ---------------------------------------------------------------------


def joint(setup: Setup, graph: Graph | None = None) -> list[Measured]:
    """Reciprocal ranks of models trained with W of low rank and without, each with its own weight of N3.

    There are two controls: the plain model, whose score has a fixed scale, and W = 0 with the b that a harmony learns.
    """
    harmony = ["model.harmony=true", f"model.rank={JOINT_RANK}"]
    recipes = {"harmony": harmony, "bias": [*harmony, "model.faithfulness=inf", "model.cap=1e-6"], "plain": []}
    families: Families = {family: {} for family in recipes}
    for weight in N3:
        for family, more in recipes.items():
            if setup.wants(family, f"N3 {weight}"):
                model = setup.train("plain", f"train.n3={weight}", *more, graph=graph)
                families[family][f"N3 {weight}"] = setup.reciprocal_ranks(model)
    return [Measured("reciprocal rank", setup.relations, families)]


def noise(setup: Setup) -> list[Measured]:
    """The same where a fifth of the training facts have a random tail."""
    train, generator = setup.graph.train, torch.Generator().manual_seed(0)
    is_wrong = torch.rand(len(train), generator=generator) < 0.2
    random = torch.randint(setup.graph.n_entities, (len(train),), generator=generator)
    noisy = Triples(train.head, train.relation, torch.where(is_wrong, random, train.tail))
    return joint(setup, replace(setup.graph, train=noisy))
