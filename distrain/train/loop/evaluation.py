"""Scoring labelled rows with a model."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from distrain.checkpoint import gather_texts
from distrain.embeddings import Peers
from distrain.errors import NonFiniteOutput
from distrain.loader import Loader
from distrain.metrics import (
    BinaryMetrics,
    BinaryReport,
    Bounded,
    DistinctScores,
    Metric,
    metric_errors,
)
from distrain.models import ClickModel
from distrain.train.loop.exact_auc import auc_over_ranks
from distrain.train.step import DeviceBinaryMetrics
from distrain.train.timing import READER, waiting


@dataclass(frozen=True)
class Evaluation:
    """The metrics of scored rows.

    Attributes:
        from_scores: The AUC of all ranks' rows from their scores; `None` where the bins serve.
        own: Metrics of the user's own, of all ranks' rows, by name.
    """

    metrics: BinaryMetrics
    merged: BinaryMetrics
    from_scores: Bounded | None
    own: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def report(self) -> BinaryReport:
        found = self.merged.compute()
        if self.from_scores is None:
            return found
        return replace(found, auc=self.from_scores.value, auc_bound=self.from_scores.bound)


def evaluate_over_ranks(
    model: ClickModel,
    loader: Loader,
    device: torch.device,
    peers: Peers,
    max_auc_bound: float,
    before_batch: Callable[[], None] = lambda: None,
    own: Mapping[str, Callable[[], Metric]] | None = None,
) -> Evaluation:
    """Score a table whose rows all ranks share; a collective operation.

    Where the bins do not bound the AUC well enough, the rows are scored once more and ordered by
    their scores: keeping the scores of every validation would cost the many that need none.
    Arguments and errors as of `evaluate`.
    """
    of_user = {name: kind() for name, kind in (own or {}).items()}
    metrics = evaluate(model, loader, device, before_batch, of_user)
    merged = _merged(metrics, peers, device)
    found = Evaluation(metrics, merged, None, own_over_ranks(of_user, peers, device))
    bound = merged.compute().auc_bound
    if bound is None or bound <= max_auc_bound:
        return found
    counted = count_scores(model, loader, device, before_batch)
    return replace(found, from_scores=auc_over_ranks(counted, peers, device))


def own_over_ranks(
    metrics: Mapping[str, Metric], peers: Peers, device: torch.device
) -> dict[str, float | None]:
    """The user's metrics of all ranks' rows; a collective operation."""
    if not metrics:
        return {}
    states = {}
    for name, metric in metrics.items():
        with metric_errors(name):
            states[name] = json.dumps(metric.to_json())
    total: dict[str, Metric] = {}
    for of_rank in map(json.loads, gather_texts(peers, device, json.dumps(states))):
        for name, metric in metrics.items():
            with metric_errors(name):
                state = metric.from_json(json.loads(of_rank[name]))
                if name in total:
                    total[name].merge(state)
                else:
                    total[name] = state
    return {name: _value_of(name, metric) for name, metric in total.items()}


def _value_of(name: str, metric: Metric) -> float | None:
    with metric_errors(name):
        found = metric.compute()
        value = math.nan if found is None else float(found)
        return value if math.isfinite(value) else None  # JSON has no other numbers


def evaluate(
    model: ClickModel,
    loader: Loader,
    device: torch.device,
    before_batch: Callable[[], None] = lambda: None,
    own: Mapping[str, Metric] | None = None,
) -> BinaryMetrics:
    """The metrics of this rank's share of a table; no collective operation but the tables' own.

    Args:
        before_batch: Called before each batch; what it raises ends the scoring.
        own: Metrics of the user's own, by name, which are updated.
    """
    metrics = DeviceBinaryMetrics(device)
    for logits, labels in scored_batches(model, loader, device, before_batch):
        metrics.update(logits, labels)
        for name, metric in (own or {}).items():
            with metric_errors(name):
                # Copies: a metric may change what it is given.
                metric.update(*(part.float().cpu().numpy().copy() for part in (logits, labels)))
    return finite_metrics(metrics)


def finite_metrics(metrics: DeviceBinaryMetrics) -> BinaryMetrics:
    """The metrics since the last call; `NonFiniteOutput` for a logit that is not finite."""
    try:
        return metrics.read_and_reset()
    except ValueError as error:  # the loader has checked the labels
        raise NonFiniteOutput(
            f"the model cannot score these rows: {error}",
            hint="Its weights may hold NaN: lower the learning rate it was trained with.",
        ) from None


def count_scores(
    model: ClickModel,
    loader: Loader,
    device: torch.device,
    before_batch: Callable[[], None] = lambda: None,
) -> DistinctScores:
    """This rank's rows by their scores, all of which are finite; arguments as of `evaluate`."""
    counted = DistinctScores()
    for logits, labels in scored_batches(model, loader, device, before_batch):
        counted.update(logits.float().cpu().numpy(), labels.cpu().numpy())
    return counted


@torch.no_grad()
def scored_batches(
    model: ClickModel,
    loader: Loader,
    device: torch.device,
    before_batch: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits and labels of each batch, `[rows]` each; arguments as of `evaluate`."""
    was_training = model.training
    model.eval()
    with loader.epoch(0) as batches:
        for _ in range(loader.num_steps):
            before_batch()
            with waiting(READER):
                batch = next(batches)
            on_device = batch.to(device)
            assert on_device.label is not None
            yield model(on_device), on_device.label
    model.train(was_training)


def _merged(metrics: BinaryMetrics, peers: Peers, device: torch.device) -> BinaryMetrics:
    """The metrics of all ranks' rows, the same on every rank; a collective operation."""
    if peers.num_ranks == 1:
        return metrics
    counts = torch.from_numpy(np.stack([metrics.negatives, metrics.positives])).to(device)
    own = torch.tensor([metrics.log_loss_sum, metrics.prediction_sum], dtype=torch.float64)
    negatives, positives = peers.count_up(counts).cpu().numpy()
    log_loss_sum, prediction_sum = peers.add_up(own.to(device)).tolist()
    return BinaryMetrics(negatives, positives, log_loss_sum, prediction_sum)
