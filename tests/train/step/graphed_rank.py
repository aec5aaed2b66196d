"""The real gloo ranks of `test_graphed_step.py`."""

import torch
from click_models import model_over
from host_work import played_torch
from played_graph import PlayedGraph, graphs_of

from distrain.jobs.spec import TrainSpec
from distrain.loader.batch import Batch
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.embeddings import EmbeddingCollection, Peers, TableColumn
from distrain.models.embeddings.row_owners import key_at
from distrain.train.loop.routed_batches import RoutedBatches, requests_of
from distrain.train.step.averages import averaged
from distrain.train.step.graphed_step import GraphedStep
from distrain.train.step.open_report import OpenReport
from distrain.train.step.recorder import WARM_UP_STEPS
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

COLUMNS = [TableColumn("a", 4000, 4), TableColumn("b", 3, 4), TableColumn("c", 70, 2)]
NAMES, NUMBERS = ("a", "b", "c"), ("x", "y")
MOST_ROWS = 64
# Each rank sees its own size come again at other steps than the others. One batch is empty.
SIZES = [(64, 64, 20, 64)] * 4 + [(0, 20, 64, 0)] + [(20, 64, 64, 9)] * 5
SKEWED = 5
"""The step of which rank 0 has all of the first column's rows, more than anybody had space for."""

GANGS = {2: ("row_wise", "mixed"), 4: ("row_wise",)}
"""Which cases ranks of each number run; the rows of `mixed` have weights."""

# name: (placement of the columns, the spec's train section)
CASES = {
    "row_wise": (("row_wise",) * 3, {"optimizer": {"kind": "adam"}, "clip_grad_norm": 0.02}),
    "mixed": (
        ("row_wise", "replicated", "row_wise"),
        {"optimizer": {"kind": "adagrad"}, "ema": 0.5},
    ),
}


def batches(rank, num_ranks, name, all_sizes=SIZES):
    generator = torch.Generator().manual_seed(rank)
    for number, sizes in enumerate(all_sizes):
        rows = sizes[rank]
        ids = [torch.randint(0, c.cardinality, (rows,), generator=generator) for c in COLUMNS]
        if number == SKEWED and all_sizes is SIZES:
            ids[0] = key_at(torch.arange(rows), 0, num_ranks)
        yield Batch(
            torch.stack(ids).to(torch.int32).T,
            torch.randn(2, rows, generator=generator).T,
            torch.randint(0, 2, (rows,), generator=generator).float(),
            NAMES,
            NUMBERS,
            weight=torch.rand(rows, generator=generator) if name == "mixed" else None,
        )


def make_model(placements, peers):
    tables = EmbeddingCollection(
        COLUMNS,
        placements=placements,
        peers=peers,
        generator=torch.Generator().manual_seed(1),
        dtype=torch.bfloat16,
    )
    torch.manual_seed(peers.rank)  # making the step gives all of them rank 0's
    return model_over(tables, MLPBlock([8]), NUMBERS)


class Source:
    """The batches of a rank, as the loader has them."""

    def __init__(self, *arguments, device="cpu"):
        # As the loader does it: copied before the step takes them.
        self._batches = iter([batch.to(torch.device(device)) for batch in batches(*arguments)])

    def __next__(self):
        return next(self._batches)

    def close(self):
        """Nothing to end."""


class FailsToRecord(PlayedGraph):
    """A graph of which a rank cannot make a recording."""

    def record(self, run):
        raise RuntimeError("operation not permitted when stream is capturing")


def train(step, rank, num_ranks, name):
    """What the steps returned and every parameter after them; replays so far by step; averages."""
    told, replays, batches = [], [], Source(rank, num_ranks, name)
    sizes = [every[:num_ranks] for every in SIZES]
    is_graphed = isinstance(step, GraphedStep)
    if is_graphed:
        requests = requests_of(step, iter(sizes))
        ahead = RoutedBatches(batches, requests, torch.device("cpu"), one_ahead=True)
    for number, rows in enumerate(sizes):
        rate = 0.1 / (1 + number)  # another one in each step
        if is_graphed:
            batch, route, _ = ahead.take(PhaseClock())
        else:
            batch, route = next(batches), None
        (logits,), loss = step(batch, max(1, sum(rows)), rate, PhaseClock(), route)
        told += [logits.clone(), loss.clone()]
        if is_graphed:
            replays.append(step._recorder.replays)
    told += [*step.model.embeddings.weights, *step.model.dense.parameters()]
    with averaged(step):
        averages = [weight.detach().clone() for weight in step.model.parameters()]
    return [values.detach() for values in told], replays, averages


def results(rank, num_ranks):
    """What a rank ends with, eagerly and with played graphs, and how often these were replayed."""
    peers = Peers(rank, num_ranks)
    told = {}
    for name in GANGS[num_ranks]:
        placements, section = CASES[name]
        spec = TrainSpec.model_validate(section)
        told[name] = {}
        for how, make_graph in (
            ("eager", None),
            ("graphed", PlayedGraph),
            ("one fails", FailsToRecord if rank == 1 else PlayedGraph),
        ):
            model = make_model(placements, peers)
            if make_graph is None:
                step = TrainStep(model, spec, num_ranks)
            else:
                step = GraphedStep(model, spec, num_ranks, MOST_ROWS, make_graph)
            told[name][how] = train(step, rank, num_ranks, name)
    return told


def steady(rank, num_ranks):
    """What the last of some steps costs a rank's host, by case: waits, launches and replays."""
    counted = {}
    for name in GANGS[num_ranks]:
        placements, section = CASES[name]
        sizes = [(MOST_ROWS,) * num_ranks] * (WARM_UP_STEPS + 4)
        with played_torch() as device:
            model = make_model(placements, Peers(rank, num_ranks)).to("meta")
            spec = TrainSpec.model_validate(section)
            step = GraphedStep(model, spec, num_ranks, MOST_ROWS, graphs_of(device))
            report = OpenReport(rank, torch.device("meta"), 20, model.task.targets, step)
            requests = requests_of(step, iter(sizes))
            source = Source(rank, num_ranks, name, sizes, device="meta")
            ahead = RoutedBatches(source, requests, torch.device("meta"), one_ahead=True)
            for number in range(len(sizes) - 1):
                before, _ = step._recorder.replays, device.forget()
                batch, route, _ = routed = ahead.take(PhaseClock())
                scores, loss = step(batch, MOST_ROWS * num_ranks, 0.1, PhaseClock(), route)
                report.add(number, routed, scores, loss)
            counted[name] = device.waits, device.launches, step._recorder.replays - before
    return counted
