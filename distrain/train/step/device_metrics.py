"""Counts a rank's rows for metrics on its device, so that the host need not wait for the device."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from distrain.errors import DataError
from distrain.loader.batch import Batch
from distrain.metrics.binary import BinaryMetrics
from distrain.metrics.bins import BINS_PER_LOGIT, LOGIT_LIMIT, NUM_BINS
from distrain.metrics.multiclass import MulticlassMetrics, rows_at_once
from distrain.metrics.regression import ERROR_BINS, ERROR_SHIFT, RegressionMetrics
from distrain.metrics.state import Parts, State
from distrain.metrics.targets import STATES, TargetMetrics
from distrain.models.heads.targets import Target, label_of, weight_of
from distrain.train.step.host_copy import HostCopy

_WORDS = {
    "binary": (2 * NUM_BINS, len(BinaryMetrics.SUMS), 2),
    "regression": (ERROR_BINS, len(RegressionMetrics.SUMS), 1),
    "multiclass": (0, len(MulticlassMetrics.SUMS), 1),
}
"""The parts of a state, in words of 8 bytes, by kind of target: its bins, sums, and row counts."""

COPIES_ON_GPU = 16
"""Copies of the bins of a binary target's rows without weights.

Additions to one address wait for each other, and the logits of a young model are in few bins. On a
CPU more copies are slower.
"""

_WRONG = {
    "binary": "a logit that is not finite or a label that is neither 0 nor 1",
    "regression": "a prediction or a target that is not finite",
    "multiclass": "a logit that is not finite or a label that is not a class",
}


class DeviceMetrics:
    """The metric state of one target on a device, with the same counts as the state in NumPy.

    The state is one int64 buffer (float64 sums are views of some of its words), so reading it takes
    one copy and one wait. The operations of `update` do not depend on values, so a CUDA graph can
    contain them. If rows have weights, the first call with weights must come before the capture.

    Args:
        kind: The kind of target: "binary", "regression" or "multiclass".
        classes: The number of classes of a multiclass target.
        is_count: Whether targets below 0 are errors, as for the Poisson loss.

    >>> metrics = DeviceMetrics(torch.device("cpu"))
    >>> metrics.update(torch.tensor([-2.0, -1.0, 1.0, 2.0]), torch.tensor([0.0, 1.0, 0.0, 1.0]))
    >>> metrics.read_and_reset().compute().auc
    0.75
    """

    def __init__(
        self,
        device: torch.device,
        kind: str = "binary",
        classes: int = 2,
        *,
        is_count: bool = False,
    ):
        self._kind, self._classes, self._is_count = kind, classes, is_count
        num_bins, num_sums, num_counts = _WORDS[kind]
        words = [num_bins, 1, num_sums, num_counts]
        self._state = torch.zeros(sum(words), dtype=torch.int64, device=device)
        parts = torch.split(self._state, words)
        self._bins, self._unusable, sums, self._counts = parts
        self._weights, self._sums = self._bins.view(torch.float64), sums.view(torch.float64)
        # The bins hold integers while binary rows have no weights; then the counts are not stored.
        self._weighted = kind != "binary"
        self._copies: Tensor | None = None
        if kind == "binary" and (copies := _copies_on(device)) > 1:
            # added to the bins when these are read
            self._copies = self._bins.new_zeros(copies, len(self._bins))

    @torch.no_grad()
    def update(self, scores: Tensor, labels: Tensor, weights: Tensor | None = None) -> None:
        """Count some rows, without waiting for the device.

        Rows with unusable values, such as a logit that is not finite, are not counted.
        `read_and_reset` then raises an error with their number.

        Args:
            scores: As in `Task.scores` for this kind, any float dtype, on this state's device; 0
                rows are allowed.
            labels: `[rows]`, in any dtype, on this state's device.
            weights: `[rows]`, 0 or more; `None`: 1 each.

        Raises:
            ValueError: Scores and labels have other shapes, or different numbers of rows.
        """
        if scores.ndim != 1 + (self._kind == "multiclass") or len(scores) != len(labels):
            shape = "[rows, classes] and [rows]" if scores.ndim > 1 else "[rows]"
            raise ValueError(
                f"logits {list(scores.shape)} and labels {list(labels.shape)} must both be {shape}"
            )
        if weights is not None and not self._weighted:
            self._begin_weights()
        most = rows_at_once(self._classes) if scores.ndim > 1 else len(scores)
        for first in range(0, len(scores), max(1, most)):
            some = slice(first, first + most)
            self._count(scores[some], labels[some], None if weights is None else weights[some])

    def _count(self, scores: Tensor, labels: Tensor, weights: Tensor | None) -> None:
        # Copies, so that later operations may work in place.
        x, y = scores.to(torch.float64, copy=True), labels.to(torch.float64, copy=True)
        usable = self._usable(x, y)
        if weights is not None:
            usable &= (weights >= 0) & (weights - weights == 0)
        unusable = usable.logical_not()
        x.masked_fill_(unusable if x.ndim == 1 else unusable[:, None], 0.0)
        y.masked_fill_(unusable, 0.0)
        mass = usable if weights is None else weights.double().masked_fill(unusable, 0.0)
        self._unusable.add_(unusable.sum())
        count = {"binary": self._binary, "regression": self._regression}
        count.get(self._kind, self._multiclass)(x, y, usable, mass)

    def _usable(self, x: Tensor, y: Tensor) -> Tensor:
        # 0 for every usable row, NaN or another number for others.
        if self._kind == "binary":
            return ((x - x) + (y * y - y)) == 0
        if self._kind == "regression":
            usable = ((x - x) + (y - y)) == 0
            return usable & (y >= 0) if self._is_count else usable
        return ((x - x).sum(1) + (y - y.floor()) == 0) & (y >= 0) & (y < self._classes)

    def _binary(self, x: Tensor, y: Tensor, usable: Tensor, mass: Tensor) -> None:
        bins = x.clamp(-LOGIT_LIMIT, LOGIT_LIMIT).float().add_(LOGIT_LIMIT).mul_(BINS_PER_LOGIT)
        index = bins.long().clamp_(max=NUM_BINS - 1).add_(y.long(), alpha=NUM_BINS)
        if self._weighted:
            _add_at(self._weights, index, mass.double())
            self._counts.add_(torch.stack([usable.sum(), (usable & (y > 0)).sum()]))
        else:
            self._count_integers(index, usable.long())
        losses = functional.logsigmoid(y.mul_(2).sub_(1).mul_(x)).neg_()
        added = BinaryMetrics.of_rows(losses, x.sigmoid_())
        self._sums.add_(torch.stack([(mass * part).sum() for part in added]))

    def _count_integers(self, index: Tensor, counts: Tensor) -> None:
        """Add integers to the bins at `index`; row r is added to copy r % copies of the bins."""
        if self._copies is None:
            self._bins.scatter_add_(0, index, counts)
            return
        copies, rows = len(self._copies), len(index)
        missing = -rows % copies
        if missing:
            index, counts = (functional.pad(each, (0, missing)) for each in (index, counts))
        shape = (rows + missing) // copies, copies
        self._copies.scatter_add_(1, index.view(shape).t(), counts.view(shape).t())

    def _collect(self) -> None:
        """Move the counts of the bins' copies to the bins."""
        if self._copies is not None:
            self._bins.add_(self._copies.sum(0))
            self._copies.zero_()

    def _regression(self, x: Tensor, y: Tensor, usable: Tensor, mass: Tensor) -> None:
        mass, e = mass.double(), x - y
        size = e.abs()
        index = size.float().view(torch.int32).bitwise_right_shift(ERROR_SHIFT)
        _add_at(self._weights, index.long().clamp_(max=ERROR_BINS - 1), mass)
        self._add(usable, mass, RegressionMetrics.of_rows(e, size, y))

    def _multiclass(self, x: Tensor, y: Tensor, usable: Tensor, mass: Tensor) -> None:
        own_class, classes = y.long()[:, None], torch.arange(self._classes, device=y.device)
        own = x.gather(1, own_class)
        place = ((x > own) | ((x == own) & (classes < own_class))).sum(1)
        losses = x.logsumexp(1) - own[:, 0]
        self._add(usable, mass.double(), MulticlassMetrics.of_rows(place, losses, self._classes))

    def _add(self, usable: Tensor, mass: Tensor, of_rows: Sequence[Tensor | float]) -> None:
        self._counts.add_(usable.sum())
        self._sums.add_(torch.stack([(mass * part).sum() for part in of_rows]))

    def _begin_weights(self) -> None:
        self._collect()
        self._counts.copy_(torch.stack([self._bins.sum(), self._bins[NUM_BINS:].sum()]))
        self._weights.copy_(self._bins.double())
        self._weighted = True

    @property
    def _num_words(self) -> int:
        return len(self._state) - (0 if self._weighted else len(self._counts))

    def copy_of_state(self) -> Tensor:
        """Return a copy of the state since the last `take`, `[words]`, int64.

        The copy of a binary target's state is shorter while no rows with weights were counted.
        """
        self._collect()
        return self._state[: self._num_words].clone()

    def add_state(self, state: Tensor) -> bool:
        """Add a state from `copy_of_state`.

        If this state is empty, it becomes an exact copy; otherwise sums may be rounded.

        Returns:
            True if the counts were added; False, without adding anything, if the length of `state`
            is not that of a state of this kind of target.

        >>> other, metrics = (DeviceMetrics(torch.device("cpu")) for _ in range(2))
        >>> other.update(torch.tensor([0.5]), torch.tensor([1.0]))
        >>> metrics.add_state(other.copy_of_state()), metrics.read_and_reset().rows
        (True, 1)
        """
        other = DeviceMetrics(self._state.device, self._kind, self._classes)
        other._weighted = other._weighted or len(state) == len(other._state)
        if len(state) != other._num_words:
            return False
        other._state[: len(state)] = state.to(self._state.device)
        for one, is_behind in ((self, other._weighted), (other, self._weighted)):
            if is_behind and not one._weighted:
                one._begin_weights()
        bins = (self._weights, other._weights) if self._weighted else (self._bins, other._bins)
        parts = ("_unusable", "_sums", "_counts")
        for mine, more in (bins, *((getattr(self, p), getattr(other, p)) for p in parts)):
            mine += more
        return True

    @property
    def rows(self) -> int:
        """The number of rows counted since the last `take`; waits for the device."""
        self._collect()
        return int(self._counts[0] if self._weighted else self._bins.sum())

    def take(self) -> "TakenState":
        """Return the state of the rows since the last call, and reset it; does not wait."""
        self._collect()
        taken = TakenState(
            HostCopy(self._state), self._kind, self._classes, self._is_count, self._weighted
        )
        self._state.zero_()
        return taken

    def read_and_reset(self) -> State:
        """Return the state of the rows since the last call, and reset it; waits for the device.

        Raises the errors of `TakenState.read`.
        """
        return self.take().read()


class TakenState(NamedTuple):
    """A state that `DeviceMetrics.take` returned, and that is being copied to the host."""

    copy: HostCopy
    kind: str
    classes: int
    is_count: bool
    weighted: bool

    def read(self) -> State:
        """Return the state; waits until the copy is complete.

        Raises `ValueError` if rows were not counted because of unusable values, or `DataError`
        instead if the targets must be counts (`is_count`).
        """
        found = DeviceMetrics(torch.device("cpu"), self.kind, self.classes)
        found._weighted = self.weighted
        found._state.copy_(self.copy.read())
        unusable = int(found._unusable)
        if unusable:
            wrong = _WRONG[self.kind]
            if self.weighted and self.kind == "binary":
                wrong += ", or a weight below 0 or not finite"
            message = f"{unusable} of {unusable + found.rows} rows have {wrong}"
            if self.is_count:  # the loader checks labels by the kind of column, not by the loss
                raise DataError(
                    f"{message}, or a target below 0",
                    hint="The loss `poisson` needs counts, 0 or more: choose another loss, or "
                    "exclude these rows with data.filter.",
                )
            raise ValueError(message)
        bins = found._weights if self.weighted else found._bins
        counts = found._counts.numpy() if self.weighted else None
        return STATES[self.kind].of_parts(Parts(bins.numpy(), found._sums.numpy(), counts))


def _copies_on(device: torch.device) -> int:
    return COPIES_ON_GPU if device.type == "cuda" else 1


def _add_at(sums: Tensor, index: Tensor, values: Tensor) -> None:
    """Add `values` to `sums` at `index`, in a fixed order, so that float64 sums are reproducible.

    If an index occurs several times, all its values are added.

    On a GPU, `scatter_add_` adds by atomics, in any order, and `index_put_` sorts. On a CPU
    `scatter_add_` adds one row after another.
    """
    if sums.device.type == "cuda":
        sums.index_put_((index,), values, accumulate=True)
    else:
        sums.scatter_add_(0, index, values)


class TargetRows(NamedTuple):
    """Rows of a target: scores as in `Task.scores`, labels, and weights or `None`."""

    target: Target
    scores: Tensor
    labels: Tensor
    weights: Tensor | None


def rows_of(
    targets: Sequence[Target], scores: Sequence[Tensor], batch: Batch
) -> tuple[TargetRows, ...]:
    """Return the rows of a batch for each target, in order; `scores` are as in `Task.scores`."""
    return tuple(
        TargetRows(target, score, label_of(batch, target.column), weight_of(batch, target))
        for target, score in zip(targets, scores, strict=True)
    )


class DeviceTargets:
    """The metric states of all targets of a task, on one device."""

    def __init__(self, targets: Sequence[Target], device: torch.device):
        self._targets = targets
        self._states = [
            DeviceMetrics(device, one.kind, one.classes, is_count=one.is_count) for one in targets
        ]

    def update(self, scores: Sequence[Tensor], batch: Batch) -> None:
        """Count the rows of a batch for each target, without waiting for the device.

        `scores` has the scores of each target, as in `Task.scores`.
        """
        self.add(rows_of(self._targets, scores, batch))

    def add(self, rows: Sequence[TargetRows]) -> None:
        for state, one in zip(self._states, rows, strict=True):
            state.update(one.scores, one.labels, one.weights)

    def tensors(self) -> dict[str, Tensor]:
        """Return copies of the states for a checkpoint: `metrics`, `metrics.1`, ... by target."""
        return {name: state.copy_of_state() for name, state in self._named()}

    def add_tensors(self, saved: Mapping[str, Tensor]) -> None:
        """Add the states from `tensors`; targets without a matching state are skipped."""
        for name, state in self._named():
            if name in saved:
                state.add_state(saved[name])

    def _named(self) -> Iterator[tuple[str, DeviceMetrics]]:
        for number, state in enumerate(self._states):
            yield f"metrics.{number}" if number else "metrics", state

    @property
    def rows(self) -> int:
        """The number of rows counted since the last `take`; waits for the device."""
        return self._states[0].rows

    def take(self) -> "TakenTargets":
        """Return the states of the rows since the last call, and reset them; does not wait."""
        return TakenTargets(
            {one.name: state.take() for one, state in zip(self._targets, self._states, strict=True)}
        )

    def read_and_reset(self) -> TargetMetrics:
        """Return the metrics of the rows since the last call, and reset; waits for the device.

        Raises the errors of `TakenState.read`.
        """
        return self.take().read()


class TakenTargets(NamedTuple):
    """The states of all targets, being copied to the host."""

    states: Mapping[str, TakenState]

    def read(self) -> TargetMetrics:
        return TargetMetrics({name: state.read() for name, state in self.states.items()})
