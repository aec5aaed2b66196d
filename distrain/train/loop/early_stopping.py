"""Decides by validations: which step is the best, when to stop, when to lower the learning rate.

Every rank keeps the same record of validations, from the same merged metrics, so all make the same
decisions. Each checkpoint contains the record, so an interrupted training decides like an
uninterrupted one.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch

from distrain.errors import DataError, DistrainError
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.training import MORE_IS_BETTER, EarlyStoppingSpec, PlateauSpec
from distrain.models.click_model import ClickModel
from distrain.models.embeddings.peers import gather_texts
from distrain.train.checkpoint.checkpoint_dir import CheckpointDir, entry_of_step
from distrain.train.checkpoint.loading import WeightsReading
from distrain.train.checkpoint.rank_store import fail_on_all_ranks, on_one_line


@dataclass(frozen=True)
class Validations:
    """The record of a training's validations: the best one, and the reduction of the learning rate.

    >>> seen = Validations("auc").after(10, 0.7, 0.01).after(20, 0.705, 0.01)
    >>> seen.best_step, seen.reference, seen.waited
    (20, 0.7, 1)
    """

    metric: str
    # steps before the best validation; if several are equal, before the first of them
    best_step: int | None = None
    best_value: float | None = None
    reference: float | None = None  # the metric at the last gain of more than `min_delta`
    waited: int = 0  # validations since then
    # for `train.reduce_on_plateau`: the product of its factors so far, the best value, and the
    # number of validations since the best value or since the last factor
    reduction: float = 1.0
    plateau_best: float | None = None
    plateau_waited: int = 0

    @classmethod
    def begin(cls, spec: JobSpec) -> "Validations | None":
        """Return an empty record for a new training; `None` if the job selects no best model."""
        return None if spec.best_metric is None else cls(spec.best_metric)

    @classmethod
    def resume(cls, spec: JobSpec, saved: Mapping[str, Any] | None) -> "Validations | None":
        """Return the record with which a training resumes.

        This is `saved`, the record in the checkpoint. If it is `None`, or the job's metric has
        changed, it is a new record that keeps only the learning rate's reduction. Returns `None` if
        the job selects no best model.
        """
        if saved is None or saved["metric"] != spec.best_metric:
            begun = cls.begin(spec)
            reduction = (saved or {}).get("reduction", 1.0)
            return None if begun is None else replace(begun, reduction=reduction)
        return cls(**saved)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def _on_plateau(self, value: float, plateau: PlateauSpec) -> "Validations":
        """Return the record with the learning rate's reduction after a validation of `value`.

        The rule is that of torch's `ReduceLROnPlateau` with a relative threshold. For a negative
        best value, such as of `r2`, torch counts slightly worse values as improvements; here the
        gain must exceed the threshold times the best value's magnitude.
        """
        best = self.plateau_best
        share = math.copysign(plateau.threshold, best or 0) * (1 if self._more_is_better else -1)
        if best is None or self._gain(value, best * (1 + share)) > 0:
            return replace(self, plateau_best=value, plateau_waited=0)
        if self.plateau_waited < plateau.patience:
            return replace(self, plateau_waited=self.plateau_waited + 1)
        return replace(self, plateau_waited=0, reduction=self.reduction * plateau.factor)

    def after(
        self,
        step: int,
        value: float | None,
        min_delta: float = 0.0,
        plateau: PlateauSpec | None = None,
    ) -> "Validations":
        """Return the record with one more validation, after `step` steps, whose metric is `value`.

        An undefined metric (`None` or NaN) does not count. A gain of at most `min_delta` may make
        the step the best, but does not reset `waited`. With `plateau`, the learning rate is reduced
        if the metric has not improved for more than `plateau.patience` validations.
        """
        if value is None or math.isnan(value):
            return self
        after = self if plateau is None else self._on_plateau(value, plateau)
        if self.best_value is None or self._gain(value, self.best_value) > 0:
            after = replace(after, best_step=step, best_value=value)
        if self.reference is None or self._gain(value, self.reference) > min_delta:
            return replace(after, reference=value, waited=0)
        return replace(after, waited=self.waited + 1)

    @property
    def _more_is_better(self) -> bool:
        return self.metric.rpartition(".")[2] in MORE_IS_BETTER

    def _gain(self, value: float, over: float) -> float:
        return value - over if self._more_is_better else over - value


def should_stop(seen: Validations | None, stopping: EarlyStoppingSpec | None) -> bool:
    """Return True if early stopping ends the training; False if the job has no early stopping."""
    return seen is not None and stopping is not None and seen.waited >= stopping.patience


def read_best_weights(
    directory: CheckpointDir,
    model: ClickModel,
    device: torch.device,
    best_step: int,
    last_step: int,
    warn: Callable[[str], None],
    after_slab: Callable[[], None],
) -> int:
    """Read the weights of `best_step` from its checkpoint; return the step of the model's weights.

    A collective operation. If the weights cannot be read, the model keeps or gets back the weights
    of `last_step`, rank 0 calls `warn` with a message, and the result is `last_step`. Raises the
    errors of `WeightsReading` if weights were overwritten and those of `last_step` cannot be read.
    """
    peers = model.embeddings.peers
    together = partial(fail_on_all_ranks, peers, device, directory.url)

    def opened(step: int) -> WeightsReading:
        found = ""
        with together():
            if peers.rank == 0:
                entry = entry_of_step(directory.list(), step)
                if entry is None:
                    raise DataError("no such checkpoint", where={"location": directory.url})
                found = entry.name
        name = gather_texts(peers, device, found)[0]
        with together():
            reading = WeightsReading(directory, name, model, peers, after_slab)
            reading.check()
        return reading

    begun = False
    try:
        reading = opened(best_step)
        begun = True
        with together():
            reading.run()
    except DistrainError as error:
        if peers.rank == 0:
            warn(
                f"the weights of the best validation, at step {best_step}, cannot be read: "
                f"{on_one_line(error)}. The model of the last step, {last_step}, is saved instead."
            )
        if begun:
            last = opened(last_step)
            with together():
                last.run()
        return last_step
    return best_step
