"""Scores labelled rows with a model, and merges the metrics of all ranks."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from distrain.errors import NonFiniteOutput
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.training import RETRIEVAL_METRIC
from distrain.loader.batch import Batch
from distrain.loader.loader import Loader
from distrain.metrics.binary import BinaryMetrics
from distrain.metrics.custom import Metric, check_metric, metric_errors
from distrain.metrics.exact import Bounded, DistinctScores
from distrain.metrics.state import Parts, State
from distrain.metrics.targets import TargetMetrics
from distrain.models.click_model import ClickModel
from distrain.models.custom import function_named
from distrain.models.embeddings.peers import Peers, gather_texts
from distrain.models.heads.retrieval import ItemRetrievalTask
from distrain.models.heads.targets import label_of
from distrain.schema.column import Tags
from distrain.schema.schema import Schema
from distrain.train.loop.exact_auc import auc_over_ranks
from distrain.train.step.device_metrics import DeviceTargets, TargetRows, rows_of
from distrain.train.timing.phases import READER, waiting

RETRIEVED = 10
_MOST_SCORES = 1 << 22


@dataclass(frozen=True)
class Evaluation:
    """The metrics of a table whose rows were scored by all ranks."""

    metrics: TargetMetrics  # the metrics of this rank's rows
    merged: TargetMetrics  # the metrics of all ranks' rows
    # by binary target: the AUC of all ranks' rows, computed from their scores; only for targets
    # whose AUC from the bins has too large an error
    from_scores: Mapping[str, Bounded] = field(default_factory=dict)
    # user-defined metrics, and recall of retrieval, of all ranks' rows, by name
    own: Mapping[str, float | None] = field(default_factory=dict)

    def value(self, metric: str) -> float | None:
        """Return a metric of all ranks' rows.

        `metric` is the name of a metric of the main target, `TARGET.METRIC`, or `recall_at_10`.
        Returns `None` if there is no such metric, or it is undefined for these rows.
        """
        if metric == RETRIEVAL_METRIC:
            return self.own.get(metric)
        target, _, name = metric.rpartition(".")
        target = target or self.merged.main_name or ""
        if name == "auc" and target in self.from_scores:
            return self.from_scores[target].value
        state = self.merged.states.get(target)
        return None if state is None else state.compute().figures().get(name)


def evaluate_over_ranks(
    model: ClickModel,
    loader: Loader,
    device: torch.device,
    peers: Peers,
    max_auc_bound: float,
    before_batch: Callable[[], None] = lambda: None,
    own: Mapping[str, Callable[[], Metric]] | None = None,
) -> Evaluation:
    """Return the metrics of a table whose rows are distributed over all ranks.

    A collective operation. The AUC of a target is first computed from binned scores, with a bound
    of its error. If the bound is above `max_auc_bound`, the rows are scored again, and the AUC is
    computed from their scores. The first pass does not keep the scores: most validations do not
    need them, and they take memory. For retrieval, the recall is computed, too. `own` has the
    classes of the user-defined metrics by name. Other arguments and errors are those of `evaluate`.
    """
    of_user = {name: kind() for name, kind in (own or {}).items()}
    metrics = evaluate(model, loader, device, before_batch, of_user)
    states = {
        name: state_over_ranks(state, peers, device) for name, state in metrics.states.items()
    }
    merged = TargetMetrics(states)
    others = own_over_ranks(of_user, peers, device)
    if isinstance(model.task, ItemRetrievalTask) and model.task.item_id is not None:
        recall = recall_over_ranks(model, model.task, loader, device, peers, before_batch)
        others = {**others, RETRIEVAL_METRIC: recall}
    found = Evaluation(metrics, merged, own=others)
    wide = aucs_above_bound(merged, max_auc_bound)
    if not wide:
        return found
    counted = count_scores(model, loader, device, wide, before_batch)
    aucs = {name: auc_over_ranks(one, peers, device) for name, one in counted.items()}
    return replace(found, from_scores={name: auc for name, auc in aucs.items() if auc is not None})


def own_metrics(spec: JobSpec, schema: Schema) -> dict[str, type[Metric]]:
    """Return the classes of a job's user-defined metrics by name, after trying each on a few rows.

    Raises:
        SpecError: A metric cannot be used.
    """
    weighted = bool(schema.select_by_tag(Tags.WEIGHT, Tags.TASK_WEIGHT).names)
    return {
        name: check_metric(name, function_named(one, f"evaluate.metrics.{name}"), weighted=weighted)
        for name, one in spec.evaluate.metrics.items()
    }


def aucs_above_bound(metrics: TargetMetrics, max_auc_bound: float) -> dict[str, bool]:
    """Return the binary targets whose AUC has an error bound above `max_auc_bound`.

    Maps the name of such a target to whether its rows have weights.
    """
    return {
        name: state.counted is not None
        for name, state in metrics.states.items()
        if isinstance(state, BinaryMetrics) and (state.compute().auc_bound or 0) > max_auc_bound
    }


def own_over_ranks(
    metrics: Mapping[str, Metric], peers: Peers, device: torch.device
) -> dict[str, float | None]:
    """Return the values of user-defined metrics for all ranks' rows; a collective operation.

    An undefined or non-finite value is `None`.
    """
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
        return value if math.isfinite(value) else None  # JSON has no NaN and no infinity


def evaluate(
    model: ClickModel,
    loader: Loader,
    device: torch.device,
    before_batch: Callable[[], None] = lambda: None,
    own: Mapping[str, Metric] | None = None,
) -> TargetMetrics:
    """Return the metrics of this rank's rows of a table.

    Lookups in sharded tables are collective operations; there are no others.

    Args:
        before_batch: Called before each batch; its errors end the scoring.
        own: User-defined metrics by name, which are updated with the rows of the first binary
            target, or of the first target if none is binary.

    Raises:
        NonFiniteOutput: A logit is not finite.
        SpecError: A user-defined metric fails.
    """
    metrics = DeviceTargets(model.task.targets, device)
    for rows in scored_batches(model, loader, device, before_batch):
        metrics.add(rows)
        for name, metric in (own or {}).items():
            _, *parts = main_rows(rows) or rows[0]
            with metric_errors(name):
                # Copies, since a metric may modify its arguments.
                metric.update(*(p.float().cpu().numpy().copy() for p in parts if p is not None))
    return finite_metrics(metrics)


def main_rows(rows: Sequence[TargetRows]) -> TargetRows | None:
    """Return the rows of the first binary target; `None` if no target is binary."""
    return next((one for one in rows if one.target.kind == "binary"), None)


def finite_metrics(metrics: DeviceTargets) -> TargetMetrics:
    """Return the metrics of the rows that `metrics` has counted since the last call; reset them.

    Raises `NonFiniteOutput` if a logit is not finite.
    """
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
    weighted: Mapping[str, bool],
    before_batch: Callable[[], None] = lambda: None,
) -> dict[str, DistinctScores]:
    """Score this rank's rows, and count them by their distinct scores; return these by target.

    `weighted` names the binary targets to count, and whether their rows have weights. Scores must
    be finite. The other arguments are those of `evaluate`.
    """
    counted = {name: DistinctScores(weighted=has) for name, has in weighted.items()}
    for rows in scored_batches(model, loader, device, before_batch):
        count_in(counted, rows)
    return counted


def count_in(counted: Mapping[str, DistinctScores], rows: Sequence[TargetRows]) -> None:
    """Add rows to the counts of their targets; targets that are not in `counted` are skipped.

    Waits for the device.
    """
    for target, scores, labels, weights in rows:
        if target.name in counted:
            counted[target.name].update(
                scores.float().cpu().numpy(),
                labels.cpu().numpy(),
                None if weights is None else weights.cpu().numpy(),
            )


@torch.no_grad()
def scored_batches(
    model: ClickModel,
    loader: Loader,
    device: torch.device,
    before_batch: Callable[[], None] = lambda: None,
) -> Iterator[tuple[TargetRows, ...]]:
    """Yield, for each batch, its rows with their scores, once for each target.

    The arguments are those of `evaluate`.
    """
    for batch in _batches(model, loader, device, before_batch):
        yield rows_of(model.task.targets, model.scores(batch), batch)


def _batches(
    model: ClickModel, loader: Loader, device: torch.device, before_batch: Callable[[], None]
) -> Iterator[Batch]:
    """Yield the batches of a table on the device, while the model is in evaluation mode."""
    was_training = model.training
    model.eval()
    with loader.epoch(0) as batches:
        for _ in range(loader.num_steps):
            before_batch()
            with waiting(READER):
                batch = next(batches)
            yield batch.to(device)
    model.train(was_training)


@torch.no_grad()
def recall_over_ranks(
    model: ClickModel,
    task: ItemRetrievalTask,
    loader: Loader,
    device: torch.device,
    peers: Peers,
    before_batch: Callable[[], None],
) -> float | None:
    """Return the share of rows with label 1 whose item ranks among the first ten for their user.

    All items that occur in the table's rows on any rank are ranked. Of items with equal scores, the
    lower id ranks first. Returns `None` if no row has the label 1. A collective operation, which
    reads the rows twice.
    """
    assert task.item_id is not None
    found = [
        _first_of_each(batch[task.item_id].long(), task.vectors(model.output(batch))[1])
        for batch in _batches(model, loader, device, before_batch)
    ]
    ids, vectors = _first_of_each(*map(torch.cat, zip(*found, strict=True)))
    counts = peers.gather_counts(torch.tensor([len(ids)], device=device)).flatten().tolist()
    gathered = (torch.cat(peers.gather_rows(some, counts)) for some in (ids, vectors))
    ids, vectors = _first_of_each(*gathered)
    hits = torch.zeros(2, dtype=torch.int64, device=device)
    for batch in _batches(model, loader, device, before_batch):
        users, _ = task.vectors(model.output(batch))
        is_wanted = label_of(batch, task.target) == 1
        own = torch.searchsorted(ids, batch[task.item_id].long())
        at_once = max(1, _MOST_SCORES // len(ids)) if len(ids) else 1
        wanted = torch.arange(len(users), device=device)[is_wanted]
        for some in torch.split(wanted, at_once):
            scores, place = users[some] @ vectors.t(), own[some][:, None]
            best = scores.gather(1, place)
            is_before = torch.arange(len(ids), device=device) < place
            better = ((scores > best) | ((scores == best) & is_before)).sum(1)
            hits += torch.stack(
                [(better < RETRIEVED).sum(), torch.tensor(len(some), device=device)]
            )
    hit, rows = peers.all_reduce_counts(hits).tolist()
    return hit / rows if rows else None


def _first_of_each(ids: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct ids, ascending, and for each id the first of its vectors.

    `ids` is `[n]`, and `vectors`, `[n, dim]`, has a vector for each of them.
    """
    ordered, order = ids.sort(stable=True)
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first], vectors[order[is_first]]


def state_over_ranks(state: State, peers: Peers, device: torch.device) -> State:
    """Merge the ranks' states of a metric; return the result, the same on every rank.

    A collective operation.
    """
    if peers.num_ranks == 1:
        return state

    def total(part: Any) -> Any:
        if part is None or not len(part):
            return part
        values = torch.from_numpy(part).to(device)
        add = peers.all_reduce_sum if values.is_floating_point() else peers.all_reduce_counts
        return add(values).cpu().numpy()

    return state.of_parts(Parts(*map(total, state.parts())))
