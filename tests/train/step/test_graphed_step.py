"""A step in a graph against the same steps one by one; the graph is played on the CPU."""

from collections import Counter
from functools import cache, partial
from pathlib import Path

import pytest
import torch
from absent_peers import NcclPeers
from click_models import model_over
from gloo_ranks import on_ranks
from host_work import HostWork
from hypothesis import given, settings, strategies as st
from loaded_scripts import load_script
from played_graph import PlayedGraph

from distrain.errors import SpecError
from distrain.jobs.spec import TrainSpec, parse_spec
from distrain.loader import LoaderStats
from distrain.loader.batch import Batch
from distrain.loader.partition.epoch_plan import EpochPlan, EpochSteps
from distrain.models.blocks.interaction import DLRMBlock
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.embeddings import EmbeddingCollection, Peers, TableColumn
from distrain.train.checkpoint import (
    CheckpointDir,
    CheckpointWriter,
    RankStore,
    TrainingState,
    load_newest,
)
from distrain.train.data.job_extent import JobSpan
from distrain.train.step import recorder
from distrain.train.step.averages import averaged
from distrain.train.step.device_metrics import DeviceTargets
from distrain.train.step.graph_conditions import (
    check_graph,
    is_custom,
    model_facts,
    records_steps,
)
from distrain.train.step.graphed_step import GraphedStep
from distrain.train.step.open_report import OpenReport
from distrain.train.step.recorder import WARM_UP_STEPS, Recorder
from distrain.train.step.routing import RoutedBatch
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

CARDINALITIES, DIM = (5, 40, 300), 4
NAMES, NUMBERS = ("a", "b", "c"), ("x", "y")
KINDS = ["sgd", "adam"]
MOST_ROWS = 30
rank_side = load_script(Path(__file__).with_name("graphed_rank.py"))


def make_model(kind, combiner=None, placement="replicated"):
    tables = EmbeddingCollection(
        [TableColumn(n, c, DIM, combiner) for n, c in zip(NAMES, CARDINALITIES, strict=True)],
        generator=torch.Generator().manual_seed(0),
        placements=[placement] * 3,
    )
    torch.manual_seed(1)
    body = MLPBlock([8]) if kind == "mlp" else DLRMBlock([8], [8])
    return model_over(tables, body, NUMBERS)


def batches():
    """A few sizes, one of which comes again and again; one batch is empty."""
    generator = torch.Generator().manual_seed(2)
    for rows in [20, 20, 7, 20, 20, 20, 0, 30, 20, 20, 20]:
        ids = [torch.randint(0, c, (rows,), generator=generator) for c in CARDINALITIES]
        yield Batch(
            torch.stack(ids).to(torch.int32).T,
            torch.randn(2, rows, generator=generator).T,
            torch.randint(0, 2, (rows,), generator=generator).float(),
            NAMES,
            NUMBERS,
        )


def train(step, part=slice(None), lr=0.1):
    """What the steps returned, and every parameter after all batches, or those of a part."""
    told = []
    for number, batch in list(enumerate(batches()))[part]:
        rate = lr / (1 + number)  # another one in each step
        (logits,), loss = step(batch, max(1, 2 * batch.num_rows), rate, PhaseClock())
        told += [logits.clone(), loss.clone()]
    return [*told, *step.model.embeddings.weights, *step.model.dense.parameters()]


def averages_of(step):
    with averaged(step):
        return [weight.detach().clone() for weight in step.model.parameters()]


@pytest.mark.parametrize("model", ["mlp", "dlrm"])
@pytest.mark.parametrize("clip", [None, 0.01])
@pytest.mark.parametrize("kind", KINDS)
def test_a_played_graph_gives_the_bits_of_plain_steps(kind, clip, model):
    spec = TrainSpec.model_validate({"optimizer": {"kind": kind}, "clip_grad_norm": clip})
    # Clipped steps of SGD as large as the weights: the last bit of the norm is seen in them.
    lr = 10.0 if (kind, clip) == ("sgd", 0.01) else 0.1
    plain = train(TrainStep(make_model(model), spec, 1), lr=lr)
    PlayedGraph.made = 0
    step = GraphedStep(make_model(model), spec, 1, MOST_ROWS, PlayedGraph)
    graphed = train(step, lr=lr)
    for ours, theirs in zip(plain, graphed, strict=True):
        assert torch.equal(ours, theirs)
    assert PlayedGraph.made == 1  # for 20 rows; the other sizes come once
    assert step.sparse_optimizer.num_steps == 11


@pytest.mark.parametrize("decay", [0.5, 0.01])  # a period of 0.01 has 10 steps
@pytest.mark.parametrize("clip", [None, 0.01])
@pytest.mark.parametrize("kind", KINDS)
def test_a_played_graph_keeps_the_averages_of_plain_steps(kind, clip, decay):
    section = {"optimizer": {"kind": kind}, "clip_grad_norm": clip, "ema": decay}
    section["table_optimizer"] = {"kind": "rowwise_adagrad" if clip else kind}
    spec = TrainSpec.model_validate(section)
    plain = TrainStep(make_model("mlp"), spec, 1)
    graphed = GraphedStep(make_model("mlp"), spec, 1, MOST_ROWS, PlayedGraph)
    for ours, theirs in zip(train(plain), train(graphed), strict=True):
        assert torch.equal(ours, theirs)
    own = [weight.clone() for weight in graphed.model.parameters()]
    with averaged(plain), averaged(graphed):
        pairs = list(zip(plain.model.parameters(), graphed.model.parameters(), strict=True))
        assert any(not torch.equal(after, w) for (_, after), w in zip(pairs, own, strict=True))
        for ours, theirs in pairs:
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-7)
    assert all(map(torch.equal, own, graphed.model.parameters()))


def test_rounded_embeddings_give_the_bits_of_those_that_autocast_rounds():
    spec = TrainSpec.model_validate({"precision": "bf16", "optimizer": {"kind": "adagrad"}})
    plain = TrainStep(make_model("mlp"), spec, 1)
    graphed = GraphedStep(make_model("mlp"), spec, 1, MOST_ROWS, PlayedGraph)
    seen, lookup = [], graphed._tables.lookup

    def noted(*arguments):
        seen.extend(lookup(*arguments))
        return tuple(seen[-1:])

    graphed._tables.lookup = noted
    for ours, theirs in zip(train(plain), train(graphed), strict=True):
        assert torch.equal(ours, theirs)
    assert {leaf.dtype for leaf in seen} == {leaf.grad.dtype for leaf in seen} == {torch.bfloat16}


def test_a_graph_counts_its_rows_and_nobody_counts_them_again(monkeypatch):
    plain = TrainStep(make_model("mlp"), TrainSpec(), 1)
    graphed = GraphedStep(make_model("mlp"), TrainSpec(), 1, MOST_ROWS, PlayedGraph)
    told, updates, update = [], [], DeviceTargets.update
    counted = lambda *rows: updates.append(1) or update(*rows)  # noqa: E731
    monkeypatch.setattr(DeviceTargets, "update", counted)
    for step, own in ((plain, None), (graphed, graphed)):
        window = OpenReport(0, torch.device("cpu"), 20, step.model.task.targets, own)
        for number, batch in enumerate(batches()):
            with HostWork() as outside:
                (logits,), loss = step(batch, max(1, batch.num_rows), 0.1, PhaseClock())
                outside.operations = 0
                window.add(number, RoutedBatch(batch, None, 0.0), (logits,), loss)
            assert outside.operations < 5 or own is None
        told.append(window.close(11, LoaderStats())[0].read())
    assert told[0] == told[1]
    assert len(updates) == 2 * 11


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("after", [2, 8])
def test_a_recorded_training_goes_on_from_a_checkpoint(kind, after, tmp_path):
    # A period of the averages has 10 steps; the first is before a checkpoint, the next after it.
    spec = TrainSpec.model_validate({"optimizer": {"kind": kind}, "ema": 0.01})
    whole = GraphedStep(make_model("mlp"), spec, 1, MOST_ROWS, PlayedGraph)
    undisturbed = [*train(whole), *averages_of(whole)]
    place = CheckpointDir(str(tmp_path))
    told = []
    for part in (slice(0, after), slice(after, None)):
        step = GraphedStep(make_model("mlp"), spec, 1, MOST_ROWS, PlayedGraph)
        optimizers = step.sparse_optimizer, step.dense.optimizer.torch_optimizer
        state = TrainingState(step.model, *optimizers)
        load_newest(place, state, Peers())
        told = [*told[: 2 * after], *train(step, part)]  # without the first part's parameters
        writer = CheckpointWriter(place, state, Peers(), RankStore(), keep=1)
        writer.save(step.sparse_optimizer.num_steps, 1, {}, {}, wait=True)
        writer.close()
    assert step.sparse_optimizer.num_steps == 11
    told += averages_of(step)
    assert all(torch.equal(a, b) for a, b in zip(told, undisturbed, strict=True))


class NoGraph(PlayedGraph):
    def record(self, run):
        raise RuntimeError("operation not permitted when stream is capturing\nand more")


def test_what_cannot_be_recorded_runs_one_by_one(caplog):
    plain = train(TrainStep(make_model("mlp"), TrainSpec(), 1))
    step = GraphedStep(make_model("mlp"), TrainSpec(), 1, MOST_ROWS, NoGraph)
    assert all(torch.equal(a, b) for a, b in zip(plain, train(step), strict=True))
    (record,) = caplog.records
    assert "not permitted when stream is capturing. Set" in record.getMessage()
    step = GraphedStep(make_model("mlp"), TrainSpec(cuda_graph=True), 1, MOST_ROWS, NoGraph)
    with pytest.raises(RuntimeError, match="capturing"):
        train(step)


def test_graphs_share_a_pool_of_memory_until_they_begin_anew(monkeypatch):
    pools, handles = [], iter(range(9))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, next(handles)))
    monkeypatch.setattr(recorder, "CudaStepGraph", lambda pool: pools.append(pool) or PlayedGraph())
    recorded = Recorder(Peers(), gives_up=False)
    for _ in range(2):
        for rows in [7, 20] * (WARM_UP_STEPS + 1):
            recorded.call("step", rows, (torch.ones(rows),), lambda inputs: (inputs[0] + 1,))
        recorded.forget()
    assert pools == [(0, 0), (0, 0), (0, 1), (0, 1)]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_all_ranks_record_and_replay_the_same_steps(data):
    """Whatever the lanes, the batch and the windows: ranks' numbers of rows differ by turns."""
    lanes = data.draw(st.sampled_from([1, 4, 6, 8, 24]))
    ranks = data.draw(st.sampled_from([n for n in range(1, 9) if lanes % n == 0]))
    batch_rows = data.draw(st.integers(1, 60))
    windows = data.draw(st.lists(st.integers(1, 900), min_size=1, max_size=3))
    epoch = EpochSteps(tuple(EpochPlan(rows, lanes, batch_rows) for rows in windows))
    span = JobSpan(2 * epoch.num_steps, epoch)
    told = []
    for rank in range(ranks):
        recorded, replays = Recorder(Peers(), gives_up=False, make_graph=PlayedGraph), []
        for step in range(span.num_steps):
            rows = span.rank_rows(step, ranks)
            assert sum(rows) == epoch.rows_in_step(step % epoch.num_steps)
            own = torch.full((rows[rank],), step)
            (result,) = recorded.call("step", rows, (own,), lambda inputs: (inputs[0] + 1,))
            assert torch.equal(result, own + 1)
            replays.append(recorded.replays)
        told.append(replays)
    assert all(replays == told[0] for replays in told)
    seen = Counter(span.rank_rows(step, ranks) for step in range(span.num_steps))
    assert told[0][-1] == sum(max(0, count - WARM_UP_STEPS) for count in seen.values())


def test_what_a_graph_cannot_hold_is_refused(wording):
    for section, model in (
        ({"micro_batches": 2}, {}),
        ({}, {"combiner": "sum"}),
        ({}, {"placement": "host_cached"}),
    ):
        spec = TrainSpec.model_validate(section)
        wording.refused(
            SpecError,
            partial(GraphedStep, make_model("mlp", **model), spec, 1, MOST_ROWS, PlayedGraph),
        )


@pytest.mark.parametrize(
    ("section", "model", "device", "records"),
    [
        ({}, {}, "cuda", True),
        ({}, {}, "cpu", False),
        ({"ema": 0.9}, {}, "cuda", True),
        ({"table_weight_decay": 0.1}, {}, "cuda", False),
        ({}, {"combiner": "sum"}, "cuda", False),
        ({}, {"placement": "host_cached"}, "cuda", False),
    ],
)
def test_auto_records_where_nothing_stands_against_it(section, model, device, records):
    spec = TrainSpec.model_validate(section)
    assert (
        records_steps(spec, torch.device(device), model_facts(make_model("mlp", **model)))
        == records
    )


@pytest.mark.parametrize(("peers", "records"), [("nccl", True), ("gloo", False)])
def test_auto_records_on_ranks_that_meet_through_nccl(peers, records, monkeypatch):
    model = make_model("mlp")
    model.embeddings.peers = (NcclPeers if peers == "nccl" else GlooPeers)(0, 2)
    assert records_steps(TrainSpec(), torch.device("cuda"), model_facts(model)) == records
    # The loss compares rows of all ranks, which a recorded step does not send.
    monkeypatch.setattr(type(model.task), "candidates", lambda *_: None)
    assert not records_steps(TrainSpec(), torch.device("cuda"), model_facts(model))
    model.embeddings.peers = Peers()
    assert records_steps(TrainSpec(), torch.device("cuda"), model_facts(model))


def test_auto_records_no_function_of_a_user():
    model = make_model("mlp")
    section = {
        "data": {"train": "rows"},
        "model": {"kind": "custom", "function": "own.module:make"},
    }
    spec = parse_spec(section)
    facts = model_facts(model, is_custom(spec))
    assert not records_steps(spec.train, torch.device("cuda"), facts)
    assert records_steps(TrainSpec(cuda_graph=True), torch.device("cuda"), facts)


class GlooPeers(Peers):
    """Ranks that meet through gloo, without being there."""

    device = torch.device("cpu")


def test_a_graph_cannot_hold_what_goes_through_gloo(wording):
    model = make_model("mlp")
    model.embeddings.peers = GlooPeers(0, 2)
    wording.refused(
        SpecError, lambda: check_graph(TrainSpec(), torch.device("cuda"), model_facts(model))
    )


def test_a_cpu_has_no_graphs(wording):
    wording.refused(SpecError, lambda: GraphedStep(make_model("mlp"), TrainSpec(), 1, MOST_ROWS))


@cache
def gang(num_ranks):
    """What each rank of a gang ended with."""
    return on_ranks(num_ranks, rank_side.results)


@pytest.mark.parametrize(
    ("num_ranks", "name"), [(n, name) for n, names in rank_side.GANGS.items() for name in names]
)
def test_played_graphs_of_ranks_give_the_bits_of_plain_steps(num_ranks, name):
    for rank in gang(num_ranks):
        eager, _, of_eager = rank[name]["eager"]
        for how in ("graphed", "one fails"):
            graphed, _, averages = rank[name][how]
            # The tables' weights are bfloat16.
            torch.testing.assert_close(averages, of_eager, rtol=2**-8, atol=1e-7)
            assert len(eager) == len(graphed) > 2 * len(rank_side.SIZES)
            assert all(torch.equal(a, b) for a, b in zip(eager, graphed, strict=True))


@pytest.mark.parametrize("num_ranks", rank_side.GANGS)
def test_ranks_replay_in_the_same_steps(num_ranks):
    """Also where a batch wants more than there is capacity for, and where one cannot record."""
    told = [rank["row_wise"] for rank in gang(num_ranks)]
    for rank in told:
        _, replays, _ = rank["graphed"]
        # Owners are asked a batch ahead, so the fourth batch's question is replayed in the third
        # step. From the skewed batch on, all warms up again.
        assert replays == [0, 0, 1, 2, 2, 2, 2, 3, 5, 6]
        assert rank["one fails"][1] == [0] * len(rank_side.SIZES)
