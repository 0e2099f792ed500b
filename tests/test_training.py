from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import harmonium
from harmonium import objective, stepping, training
from harmonium.composition import find_composition
from harmonium.config import Config, ModelConfig, TrainConfig
from harmonium.errors import HarmoniumError
from harmonium.evaluation import Frequency, evaluate
from harmonium.graph import Graph, Slot, Triples, Vocabulary
from harmonium.harmony import Harmony, Sum
from harmonium.model import GradientGraph
from harmonium.objective import CONTRASTIVE, relation_softmax
from harmonium.optimiser import RowAdagrad, RowAdam, RowwiseAdagrad
from harmonium.training import History, Progress, build_model, fit
from small import family, make_graph

SMALL = ["model.composition=complex", "model.entity_dim=16", "train.batch_size=32", "train.negatives=20"]
NOTHING = Triples.from_rows([])


def settings(*more: str) -> Config:
    return Config.read(None, [*SMALL, "train.learning_rate=0.03", "train.epochs=5", "train.evaluate_every=5", *more])


def trained(graph: Graph, config: Config, **options) -> tuple[GradientGraph, History]:
    model = build_model(config.model, graph.n_entities, graph.n_relations, config.train.seed)
    return model, fit(model, graph, config, **options)


# Learning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["sampled", "full"])
@pytest.mark.parametrize("optimizer", ["train.optimizer=adam", "train.optimizer=adagrad train.learning_rate=0.3"])
@pytest.mark.parametrize("more", ["", "model.harmony=false", "model.reciprocal=true model.rank=4", "train.n3=0.001"])
def test_training_beats_counting(loss: str, optimizer: str, more: str) -> None:
    graph = family()
    config = settings(f"train.loss={loss}", "train.epochs=25", *optimizer.split(), *more.split())
    model, history = trained(graph, config)
    assert evaluate(Frequency(graph), graph).metrics["mrr"] < 0.05
    assert evaluate(model, graph).metrics["mrr"] > 0.8
    assert history.rows[-1]["loss"] < history.rows[0]["loss"] / 3
    assert history.stopped == "all epochs done" or history.stopped.startswith("no better mrr since epoch")


def test_a_reciprocal_model_answers_heads_by_its_second_vectors() -> None:
    graph = family()
    model, _ = trained(graph, settings("model.reciprocal=true", "train.epochs=20"))
    assert model.relation.shape[0] == 2 * graph.n_relations
    before = {slot: model.score_slot(slot, graph.test).detach() for slot in Slot}
    with torch.no_grad():
        model.relation[graph.n_relations :].add_(1)
    after = {slot: model.score_slot(slot, graph.test).detach() for slot in Slot}
    assert not torch.equal(before[Slot.HEAD], after[Slot.HEAD])
    assert torch.equal(before[Slot.TAIL], after[Slot.TAIL])
    assert after[Slot.RELATION].shape == (10, graph.n_relations)


def test_the_same_seed_gives_the_same_parameters_to_the_bit() -> None:
    def parameters(seed: int, more: str) -> list[torch.Tensor]:
        return [p.detach() for p in trained(family(), settings(f"train.seed={seed}", more))[0].parameters()]

    for more in ("train.loss=sampled", "train.loss=full", "model.rank=3"):
        first, again, other = parameters(7, more), parameters(7, more), parameters(8, more)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
        assert all(not torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_the_order_and_negatives_follow_the_seed_too() -> None:
    graph, config = family(), settings()
    start = build_model(config.model, graph.n_entities, graph.n_relations)
    one, two = copy.deepcopy(start), copy.deepcopy(start)
    fit(one, graph, settings("train.seed=1"))
    fit(two, graph, settings("train.seed=2"))
    assert not torch.equal(one.entity, two.entity)


def test_training_without_a_valid_split_runs_to_the_end() -> None:
    graph = dataclasses.replace(family(), valid=NOTHING)
    model, history = trained(graph, settings("train.epochs=30"))
    assert len(history.rows) == history.best_epoch == 30
    assert history.stopped == "all epochs done"
    assert all("valid" not in row for row in history.rows)
    assert evaluate(model, graph).metrics["mrr"] > 0.8


def test_training_needs_triples() -> None:
    with pytest.raises(HarmoniumError, match=r"the train split of 'family' has no triples; it has valid \(10\), test"):
        trained(dataclasses.replace(family(), train=NOTHING), settings())


# Stopping --------------------------------------------------------------------------------------------------------


def script(monkeypatch: pytest.MonkeyPatch, values: list[float], metric: str = "mrr") -> list[dict]:
    """Validation gives these numbers; returns the parameters at each."""
    seen: list[dict] = []

    def validate(model: GradientGraph, graph: Graph, triples: Triples, device: torch.device) -> dict[str, float]:
        seen.append(copy.deepcopy(model.state_dict()))
        return {metric: values[len(seen) - 1]}

    monkeypatch.setattr(training, "validate", validate)
    return seen


def same(model: GradientGraph, state: dict) -> bool:
    return all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


def test_early_stopping_keeps_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = script(monkeypatch, [0.1, 0.5, 0.5, 0.4, 0.49, 0.9])
    model, history = trained(family(), settings("train.epochs=20", "train.evaluate_every=2", "train.patience=3"))
    assert len(seen) == 5
    assert len(history.rows) == 10
    assert history.best_epoch == 4
    assert history.stopped == "no better mrr since epoch 4"
    assert same(model, seen[1])
    assert not same(model, seen[4])


def test_the_metric_to_stop_on_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, [0.3, 0.2, 0.1], "hits@10")
    more = ("train.epochs=9", "train.evaluate_every=1", "train.patience=2", "train.metric=hits@10")
    assert trained(family(), settings(*more))[1].stopped == "no better hits@10 since epoch 1"


def test_the_last_epoch_is_always_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = script(monkeypatch, [0.1, 0.2, 0.3])
    told: list[dict] = []
    model, history = trained(family(), settings("train.epochs=7", "train.evaluate_every=3"), on_validation=told.append)
    assert [row["epoch"] for row in history.rows if "valid" in row] == [3, 6, 7]
    assert told == [history.rows[2], history.rows[5], history.rows[6]]
    assert history.rows[-1]["valid"] == {"mrr": 0.3}
    assert (history.best_epoch, history.stopped) == (7, "all epochs done")
    assert same(model, seen[2])
    assert history.seconds == history.rows[-1]["seconds"] > 0


def test_validation_takes_a_seeded_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list] = []
    monkeypatch.setattr(
        training, "validate", lambda m, g, triples, d: seen.append(triples.rows().tolist()) or {"mrr": 1}
    )
    graph = family()
    for seed in (0, 0, 1):
        trained(graph, settings("train.validation_triples=4", "train.epochs=1", f"train.seed={seed}"))
    assert len(seen[0]) == 4
    assert all(row in graph.valid.rows().tolist() for row in seen[0])
    assert seen[0] == seen[1] != seen[2]


def interrupt_in(epoch: int) -> Callable[[Progress], None]:
    def watch(now: Progress) -> None:
        if now.epoch == epoch and now.step % 4 == 2:  # in the middle: 100 triples in batches of 32 are 4 steps
            raise KeyboardInterrupt

    return watch


def test_an_interrupt_keeps_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = script(monkeypatch, [0.1, 0.5, 0.4])
    config = settings("train.epochs=9", "train.evaluate_every=1")
    model, history = trained(family(), config, watch=interrupt_in(epoch=4))
    assert history.stopped == "interrupted in epoch 4"
    assert (history.best_epoch, len(history.rows)) == (2, 3)
    assert same(model, seen[1])


def test_progress_counts_every_step() -> None:
    told: list[Progress] = []
    _, history = trained(family(), settings("train.epochs=2", "train.evaluate_every=1"), watch=told.append)
    assert [now.step for now in told] == list(range(1, 9))
    assert {now.steps for now in told} == {8}
    assert [now.epoch for now in told] == [1] * 4 + [2] * 4
    assert math.isnan(told[0].loss)
    assert told[-1].loss == history.rows[0]["loss"]
    assert told[-1].best == history.rows[0]["valid"]["mrr"]


# What goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", ["", "model.constraint=spectral", "model.rank=3", "model.harmony=false"])
@pytest.mark.parametrize("loss", ["sampled", "full"])
def test_a_loss_that_is_not_a_number_names_the_learning_rate(loss: str, more: str) -> None:
    with pytest.raises(
        HarmoniumError, match=r"the loss became (nan|inf) in epoch 1; lower train.learning_rate \(1e\+38"
    ):
        trained(family(), settings("train.learning_rate=1e38", f"train.loss={loss}", *more.split()))


def test_a_norm_above_lambda_stops_training_though_within_a_hundredth_of_the_cap(monkeypatch) -> None:
    monkeypatch.setattr(Harmony, "norm", lambda form: 0.9985)
    with pytest.raises(HarmoniumError, match=r"W left its constraint \(its frobenius norm is 0.999, the cap 0.995\)"):
        trained(family(), settings("model.cap=0.995", "model.faithfulness=1"))


@pytest.mark.parametrize("device", ["tpu", "gpu", "cuda:99", ""])
def test_a_device_that_is_not_there_is_named(device: str) -> None:
    with pytest.raises(HarmoniumError, match=f"train.device '{device}' cannot be used here"):
        trained(family(), settings(f'train.device="{device}"'))


@pytest.mark.parametrize(("size", "norm"), [(1e25, "0"), (4.0, "2")])
def test_w_that_left_its_constraint_stops_training(size: float, norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A W too large to be squared vanishes without a word; one above the cap has no maximum to find."""
    if norm == "2":
        monkeypatch.setattr(Harmony, "norm", lambda form: 2.0)

    def watch(now: Progress) -> None:
        if now.step == 7:
            with torch.no_grad():
                model.form.free.fill_(size)

    graph, config = family(), settings()
    model = build_model(config.model, graph.n_entities, graph.n_relations)
    where = 2 if norm == "0" else 1
    with pytest.raises(HarmoniumError) as caught:
        fit(model, graph, config, watch)
    assert f"W left its constraint (its frobenius norm is {norm}, the cap 0.75) in epoch {where}; lower" in str(
        caught.value
    )


@pytest.mark.parametrize(
    "more", ["", "model.rank=3", "model.constraint=spectral", "model.rank=3 model.constraint=spectral"]
)
def test_the_norm_of_w_is_that_of_the_matrix(more: str) -> None:
    form = trained(family(), settings("train.learning_rate=0.5", *more.split()))[0].form
    norms = {"frobenius": "fro", "spectral": 2}
    expected = torch.linalg.matrix_norm(form.matrix().detach().double(), ord=norms[form.constraint]).item()
    assert form.norm() == pytest.approx(expected, rel=1e-5)
    assert expected == pytest.approx(form.cap, rel=1e-4)


def test_memory_that_runs_out_says_what_to_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(stepper: stepping.Stepper, *_: Tensor | None) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(stepping.Stepper, "move", fail)
    with pytest.raises(
        HarmoniumError, match=r"out of memory \(CUDA out.*\); lower train.batch_size or train.negatives"
    ):
        trained(family(), settings())


def test_threads_are_set_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    trained(family(), settings("train.epochs=1"))
    assert asked == []
    trained(family(), settings("train.epochs=1", "train.threads=3"))
    assert asked == [3]


def test_a_form_of_another_size_is_refused() -> None:
    with pytest.raises(HarmoniumError, match="the form has 5 dimensions, hole composes 6"):
        harmonium.GradientGraph(find_composition("hole"), 4, 2, 6, Sum(5))
    with pytest.raises(HarmoniumError, match="no initialisation 'zero'; there are calibrated, paper"):
        GradientGraph(find_composition("hole"), 4, 2, 6, Sum(6)).initialise("zero")
    with pytest.raises(HarmoniumError, match="plain hole has no harmony, so no tokens"):
        build_model(ModelConfig("hole", 6, harmony=False), 4, 2).tokens(Triples.from_rows([[0, 0, 1]]))


# Options ---------------------------------------------------------------------------------------------------------

HARMONY = ["model.harmony=true", "model.harmony=false"]


@pytest.mark.parametrize("loss", sorted(set(CONTRASTIVE) - {"sampled"}))
@pytest.mark.parametrize("more", ["", "model.harmony=false", "model.reciprocal=true model.rank=4"])
def test_every_loss_beats_counting(loss: str, more: str) -> None:
    graph = family()
    model, history = trained(
        graph, settings(f"train.loss={loss}", "train.margin=0.5", "train.epochs=40", *more.split())
    )
    assert evaluate(model, graph).metrics["mrr"] > 0.15
    assert history.rows[-1]["loss"] < 0.8 * history.rows[0]["loss"]


def test_a_loss_without_a_margin_does_not_see_it() -> None:
    for loss, alike in (("sampled", True), ("linear-margin", False)):
        one, other = (trained(family(), settings(f"train.loss={loss}", f"train.margin={m}"))[0] for m in (0.1, 1.0))
        assert torch.equal(one.entity, other.entity) is alike


def steps(graph: Graph, config: Config, count: int) -> stepping.Stepper:
    """A stepper after some steps on random batches, at a constant rate."""
    model = build_model(config.model, graph.n_entities, graph.n_relations)
    generator = torch.Generator().manual_seed(0)
    take_step = stepping.Stepper(model, graph.train, dataclasses.replace(config.train, schedule="constant"), generator)
    for _ in range(count):
        order = take_step.begin_epoch(torch.randperm(len(graph.train), generator=generator))
        take_step(order[: config.train.batch_size])
    return take_step


@pytest.mark.parametrize("loss", ["sampled", "full", "linear-margin"])
@pytest.mark.parametrize("more", [*HARMONY, "model.reciprocal=true model.rank=4"])
def test_relation_corruption_teaches_relations(loss: str, more: str) -> None:
    graph, found = family(), []
    for weight in (0, 5):
        config = settings(f"train.loss={loss}", f"train.relation_corruption={weight}", *more.split())
        found.append(relation_softmax(steps(graph, config, 12).model.snapshot(), graph.train).item())
    assert found[1] < 0.9 * found[0]


@pytest.mark.parametrize("more", [*HARMONY, "train.loss=full", "model.normalise=false"])
def test_the_type_loss_teaches_entities_their_types(more: str) -> None:
    graph = make_graph(n_entities=30, n_relations=4, sizes=(80, 0, 5))
    head, relation, tail = graph.train.rows().T
    graph = dataclasses.replace(graph, train=Triples(head % 15, relation, 15 + tail % 15))
    off, on = (steps(graph, settings(f"train.type_loss={weight}", *more.split()), 60) for weight in (0, 1))
    knows_slot, chance = math.log(graph.n_relations), math.log(2 * graph.n_relations)
    assert on.types(on.model.snapshot(), graph.train) < (knows_slot + chance) / 2
    assert set(on.model.state_dict()) == set(off.model.state_dict())
    assert not torch.equal(on.model.entity, off.model.entity)


@pytest.mark.parametrize("option", ["relation_corruption=0.5", "type_loss=0.5", "loss=logistic"])
def test_options_move_touched_rows_as_all(option: str) -> None:
    graph, found = make_graph(n_entities=150, sizes=(60, 0, 5)), []
    for rows in ("touched", "all"):
        config = settings(
            "train.optimizer=adagrad", "train.batch_size=8", "train.negatives=3", f"train.rows={rows}", f"train.{option}"
        )  # fmt: skip
        stepper = steps(graph, config, 6)
        assert (stepper.rows is not None) is (rows == "touched")
        found.append(stepper.model)
    for one, other in zip(*(model.parameters() for model in found), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("more", ["", "model.rank=4", "model.constraint=spectral", "train.loss=full"])
def test_dropout_changes_training_and_nothing_else(more: str) -> None:
    graph, config = family(), settings("model.dropout=0.3", "train.epochs=25", *more.split())
    model, _ = trained(graph, config)
    again, without = trained(graph, config)[0], trained(graph, settings("train.epochs=25", *more.split()))[0]
    assert model.form.mask is None
    assert torch.equal(model.form.free, again.form.free)
    assert not torch.equal(model.form.free, without.form.free)
    assert torch.equal(model.score(graph.test), model.score(graph.test))
    assert evaluate(model, graph).metrics["mrr"] > 0.8


def test_a_plain_model_has_no_w_to_drop() -> None:
    one, other = (trained(family(), settings("model.harmony=false", f"model.dropout={share}"))[0] for share in (0, 0.5))
    assert torch.equal(one.entity, other.entity)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    "more",
    [
        *(f"train.loss={loss}" for loss in [*CONTRASTIVE, "full"]),
        *(f"train.relation_corruption=0.5 {more}" for more in [*HARMONY, "model.reciprocal=true"]),
        *(f"train.type_loss=0.5 train.optimizer={optimizer}" for optimizer in ("adam", "adagrad")),
        *(f"model.dropout=0.3 {more}" for more in ("", "model.rank=4")),
        *(f"model.composition={name}" for name in ("concatenation", "rescal", "rescalproduct", "triplecorrelation")),
    ],
)
def test_what_a_gpu_replays_learns(more: str) -> None:
    """Every loss, option and composition inside a CUDA graph."""
    graph, more = family(), ["model.composition=hole", "model.entity_dim=8", *more.split()]
    config = settings("train.device=cuda", "train.batch_size=20", "train.epochs=30", *more)
    model = build_model(config.model, graph.n_entities, graph.n_relations)
    rows = fit(model, graph, config).rows
    assert rows[-1]["loss"] < 0.97 * rows[0]["loss"]


@pytest.mark.parametrize("composition", ["concatenation", "rescal", "rescalproduct", "triplecorrelation"])
def test_each_composition_learns_under_harmony(composition: str) -> None:
    graph, config = family(), settings(f"model.composition={composition}", "model.entity_dim=8", "train.epochs=30")
    model, history = trained(graph, config)
    assert history.rows[-1]["loss"] < 0.9 * history.rows[0]["loss"]
    assert evaluate(model, graph).metrics["mrr"] > 2 * evaluate(Frequency(graph), graph).metrics["mrr"]


def test_n3_pulls_vectors_in() -> None:
    graph = dataclasses.replace(family(), valid=NOTHING)
    free, held = (
        trained(graph, settings("model.normalise=false", "train.epochs=20", f"train.n3={weight}"))[0]
        for weight in (0, 1)
    )
    assert held.entity.norm() < 0.7 * free.entity.norm()


# Only the rows that a step touched -------------------------------------------------------------------------------


def test_row_optimisers_are_torchs_lazy_adam_and_dense_adagrad() -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(9, 3, generator=generator)
    for row_kind, kind in ((RowAdam, torch.optim.SparseAdam), (RowAdagrad, torch.optim.Adagrad)):
        table, expected = start.clone(), start.clone().requires_grad_()
        mine, reference = row_kind(table, 0.1), kind([expected], lr=0.1)
        for _ in range(6):
            rows = torch.randperm(9, generator=generator)[:4].sort().values
            gradient = torch.randn(4, 3, generator=generator)
            mine.step(rows, gradient)
            sparse = torch.sparse_coo_tensor(rows[None], gradient, (9, 3), check_invariants=True).coalesce()
            expected.grad = sparse if kind is torch.optim.SparseAdam else sparse.to_dense()
            reference.step()
        torch.testing.assert_close(table, expected.detach(), rtol=1e-4, atol=1e-6)
        assert not torch.equal(table, start)


def test_rowwise_adagrad_is_a_plain_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(9, 3, generator=generator, dtype=torch.float64)
    expected, sums, mine = table.clone(), [0.0] * 9, RowwiseAdagrad(table, 0.1)
    for _ in range(6):
        rows = torch.randperm(9, generator=generator)[:4]
        gradient = torch.randn(4, 3, generator=generator, dtype=torch.float64)
        mine.step(rows, gradient)
        for row, g in zip(rows.tolist(), gradient, strict=True):
            sums[row] += sum(x * x for x in g.tolist()) / 3
            expected[row] -= 0.1 * g / (math.sqrt(sums[row]) + 1e-10)
    torch.testing.assert_close(table, expected, rtol=1e-12, atol=1e-12)
    again = RowwiseAdagrad(table.clone(), 0.1)
    assert mine.state_dict()["squares"].shape == (9, 1)
    again.load_state_dict(mine.state_dict())
    for each in (mine, again):
        each.step(torch.tensor([2, 5]), torch.ones(2, 3, dtype=torch.float64))
    assert mine.table.equal(again.table)


@pytest.mark.parametrize("sets", [["optimizer=row-adagrad"], ["sampler=degree", "shared=8"], ["sampler=typed"]])
def test_settings_for_large_graphs_learn_on_small_ones_too(sets: list[str]) -> None:
    graph, config = (
        family(),
        Config.read(
            None, ["model.entity_dim=16", "model.rank=4", "train.learning_rate=0.05", *(f"train.{s}" for s in sets)]
        ),
    )
    first, one, other = (steps(graph, config, count) for count in (0, 30, 30))
    assert one.model.entity.equal(other.model.entity)
    assert one(torch.arange(100)) < 0.8 * first(torch.arange(100))


def moves_rows(graph: Graph, settings: TrainConfig) -> bool:
    """Whether a step would move only the rows it touched."""
    model = build_model(ModelConfig("hole", 4), graph.n_entities, graph.n_relations)
    return stepping.Stepper(model, graph.train, settings, torch.Generator()).rows is not None


@pytest.mark.parametrize("composition", ["hole", "complex"])
@pytest.mark.parametrize("more", ["model.harmony=false", "model.rank=2 model.reciprocal=true", "train.n3=0.1"])
def test_moving_touched_rows_is_moving_all_with_adagrad(composition: str, more: str) -> None:
    """A row without gradient does not move under Adagrad, so the two ways give the same model."""
    graph = make_graph(n_entities=150, sizes=(60, 0, 5))
    found = []
    for rows in ("touched", "all"):
        config = settings(
            f"model.composition={composition}", "train.optimizer=adagrad", "train.batch_size=8", "train.negatives=3",
            "train.epochs=3", f"train.rows={rows}", *more.split(),
        )  # fmt: skip
        found.append(trained(graph, config)[0])
    assert moves_rows(graph, TrainConfig(batch_size=8, negatives=3))
    assert not moves_rows(graph, TrainConfig(batch_size=8, negatives=3, rows="all"))
    assert not moves_rows(graph, TrainConfig(batch_size=8, negatives=99))
    assert not moves_rows(graph, TrainConfig(batch_size=8, negatives=3, loss="full"))
    for one, other in zip(*(model.parameters() for model in found), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_moving_touched_rows_with_adam_learns_too() -> None:
    graph = family(generations=400)
    config = settings("train.batch_size=16", "train.negatives=4", "train.epochs=15", "train.learning_rate=0.1")
    model, _ = trained(graph, config)
    assert moves_rows(graph, config.train)
    assert evaluate(model, graph).metrics["mrr"] > 0.5


@pytest.mark.parametrize("reciprocal", ["true", "false"])
def test_working_relation_by_relation_changes_nothing(reciprocal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is sorted by relation then, so every triple gets the same negatives here."""
    same_for_all = torch.arange(20).expand(50, -1)
    monkeypatch.setattr(
        objective, "draw_negatives", lambda _, size, *rest: dict.fromkeys((Slot.HEAD, Slot.TAIL), same_for_all[:size])
    )
    few, found, rooms = make_graph(n_entities=30, n_relations=12, sizes=(320, 0, 5)), [], []
    graph = dataclasses.replace(few, relations=Vocabulary([f"r{i}" for i in range(60)], kind="relation"))
    config = settings("train.epochs=2", "train.batch_size=50", f"model.reciprocal={reciprocal}", "train.n3=0.01")
    begin = stepping.Stepper.begin_epoch
    for by_relation in (True, False):

        def begin_epoch(stepper: stepping.Stepper, order: Tensor, by_relation: bool = by_relation) -> Tensor:
            stepper.by_relation = by_relation
            mine = begin(stepper, order)
            rooms.append(stepper.room)
            for one, other in zip(mine.split(50), order.split(50), strict=True):
                assert one.sort().values.equal(other.sort().values)
                assert not by_relation or stepper.train.relation[one].diff().ge(0).all()
            return mine

        monkeypatch.setattr(stepping.Stepper, "begin_epoch", begin_epoch)
        found.append(trained(graph, config)[0])
    assert rooms == [16, 16, 60, 60]  # at most 12 relations in a batch, rounded up; or all of them
    for one, other in zip(*(model.parameters() for model in found), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


# The command -----------------------------------------------------------------------------------------------------


def test_train_returns_a_run_with_metrics_and_the_baselines() -> None:
    graph = family()
    run = harmonium.train(settings("train.epochs=20", "evaluate.ties=pessimistic"), graph)
    assert run.path is None
    assert run.metrics["metrics"] == evaluate(run.model, graph, run.config.evaluate).metrics
    assert run.metrics["protocol"]["ties"] == "pessimistic"
    assert run.metrics["frequency_baseline"] == evaluate(Frequency(graph), graph, run.config.evaluate).metrics


def test_train_evaluates_what_there_is() -> None:
    no_test = harmonium.train(settings("train.epochs=1"), dataclasses.replace(family(), test=NOTHING))
    assert no_test.metrics["protocol"]["split"] == "valid"
    nothing_held_out = dataclasses.replace(family(), valid=NOTHING, test=NOTHING)
    assert harmonium.train(settings("train.epochs=1"), nothing_held_out).metrics == {}


def test_a_run_remembers_which_graph_it_saw(write_folder) -> None:
    folder = write_folder({"train.txt": "a\tr\tb\nb\tr\tc\nc\tr\ta\n"})
    for data in (str(folder), folder):
        assert harmonium.train(settings("train.epochs=1"), data).config.data == str(folder)
    assert harmonium.train(settings("train.epochs=1", f"data={folder}")).config.data == str(folder)
    assert harmonium.train(settings("train.epochs=1"), family()).config.data == "family"


def test_settings_come_from_one_place() -> None:
    with pytest.raises(HarmoniumError, match="give either a Config or settings as text, not both"):
        harmonium.train(settings(), family(), sets=["train.epochs=1"])
