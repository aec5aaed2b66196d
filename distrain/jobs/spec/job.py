"""The job spec: its sections, and the rules between them."""

from typing import Literal

from pydantic import Field, model_validator

from distrain.jobs.spec.data import DataSpec
from distrain.jobs.spec.fields import Section
from distrain.jobs.spec.models.kinds import CustomSpec, EmbeddingsSpec, ModelSpec
from distrain.jobs.spec.resources import (
    CheckpointSpec,
    DeadlinesSpec,
    QueueSpec,
    ResourcesSpec,
    RestartSpec,
)
from distrain.jobs.spec.training import LANES, MOST_LANES, EvaluateSpec, TrainSpec, lanes_for

JOB_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
RANKS_THAT_SEND_ALL = 8
"""The most ranks that send every report to the scheduler, unless `train.log_every_s` is set."""

REPORTS_PER_S = 32
"""Maximum reports per second of a job with more than `RANKS_THAT_SEND_ALL` ranks, by default.

All its ranks together send them. They take about 2 % of a core of the scheduler.
"""


class JobSpec(Section):
    """One training job."""

    version: Literal[1] = Field(1, description="The version of this document's format.")
    name: str = Field(
        "distrain", pattern=JOB_NAME, description="A short name, with which the job's id begins."
    )
    tags: dict[str, str] = Field({}, description="Your own labels of the job.")
    data: DataSpec
    model: ModelSpec
    train: TrainSpec = TrainSpec()
    evaluate: EvaluateSpec = EvaluateSpec()
    embeddings: EmbeddingsSpec = EmbeddingsSpec()
    resources: ResourcesSpec = ResourcesSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    restart: RestartSpec = RestartSpec()
    deadlines: DeadlinesSpec = DeadlinesSpec()
    queue: QueueSpec = QueueSpec()

    def for_rows(self, rows: int) -> "JobSpec":
        """Return the spec with `auto` replaced by the values for this number of training rows."""
        if "auto" not in (self.train.global_batch_size, self.train.epochs):
            return self
        train = self.train.for_rows(rows, in_order=self.data.windows is not None)
        return self.model_copy(update={"train": train})

    @property
    def functions(self) -> dict[str, str]:
        """The user's functions and classes (`package.module:NAME`), by the field with the name."""
        found = {f"evaluate.metrics.{name}": one for name, one in self.evaluate.metrics.items()}
        if isinstance(self.model, CustomSpec):
            found["model.function"] = self.model.function
        return found

    @property
    def best_metric(self) -> str | None:
        """The metric that decides which validation is the best; `None` if none does."""
        stopping = self.train.early_stopping
        return self.checkpoint.keep_best if stopping is None else stopping.metric

    @property
    def log_every_s(self) -> float:
        """The minimum seconds between two reports of a rank to the scheduler; 0: send every report.

        By default, it is 0 for up to 8 ranks. More ranks together send at most 32 reports a second,
        so that the scheduler's load does not grow with the number of ranks.
        """
        said, ranks = self.train.log_every_s, self.resources.num_ranks
        if said is not None:
            return said
        return ranks / REPORTS_PER_S if ranks > RANKS_THAT_SEND_ALL else 0.0

    @property
    def allowed_ranks(self) -> tuple[int, ...]:
        """The numbers of ranks that the job may train with, the largest first."""
        most, fewest = self.resources.num_ranks, self.resources.min_ranks
        numbers = range(most, (most if fewest is None else fewest) - 1, -1)
        return tuple(n for n in numbers if self.train.lanes % n == 0)

    @model_validator(mode="after")
    def _lanes_chosen(self) -> "JobSpec":
        """Set `train.lanes`, if unset, to the smallest multiple of 24 that fits `num_ranks`.

        The number is then part of the spec, and stays the same if the number of ranks changes.
        """
        ranks = self.resources.num_ranks
        lanes = lanes_for(ranks)
        if "lanes" in self.train.model_fields_set or lanes == LANES:
            return self
        if lanes > MOST_LANES:
            fits = MOST_LANES // ranks * ranks
            raise ValueError(
                f"resources.num_ranks {ranks} needs {lanes} lanes, but {MOST_LANES} are the most"
                + (f"; set train.lanes to {fits}" if fits else "")
            )
        # The model is frozen. The field is marked as set, so that short documents contain it.
        self.__dict__["train"] = self.train.model_copy(update={"lanes": lanes})
        self.__pydantic_fields_set__.add("train")
        return self

    @model_validator(mode="after")
    def _consistent(self) -> "JobSpec":
        ranks, lanes = self.resources.num_ranks, self.train.lanes
        if lanes % ranks:
            allowed = [n for n in range(1, lanes + 1) if lanes % n == 0]
            needed = lanes_for(ranks)
            raise ValueError(
                f"resources.num_ranks {ranks} does not divide train.lanes {lanes}; "
                f"with {lanes} lanes it may be {', '.join(map(str, allowed))}"
                + (f"; a new run with {ranks} ranks takes train.lanes {needed} (or auto)")
                * (needed <= MOST_LANES)
            )
        fewest = self.resources.min_ranks
        if fewest is not None and fewest > ranks:
            raise ValueError(
                f"resources.min_ranks {fewest} is more than resources.num_ranks {ranks}"
            )
        stopping, best = self.train.early_stopping, self.checkpoint.keep_best
        if stopping is not None and best not in (None, stopping.metric):
            raise ValueError(
                f"train.early_stopping.metric is {stopping.metric}, but checkpoint.keep_best is "
                f"{best}; a run has one best model: name the same metric, or leave keep_best out"
            )
        self._check_refit()
        plateau = self.train.reduce_on_plateau
        for field, section in (("early_stopping", stopping), ("reduce_on_plateau", plateau)):
            if section is not None and not (self.data.valid and self.evaluate.every_steps):
                raise ValueError(
                    f"train.{field} needs validations: set data.valid and evaluate.every_steps"
                )
        if plateau is not None and self.best_metric is None:
            raise ValueError(
                "train.reduce_on_plateau needs a metric: set checkpoint.keep_best, such as to auc"
            )
        for field, is_set in (
            ("evaluate.next_window", self.evaluate.next_window),
            ("checkpoint.window_models", self.checkpoint.window_models),
        ):
            if is_set and self.data.windows is None:
                raise ValueError(f"{field} needs windows: set data.windows")
        if self.train.table_weight_decay and self.embeddings.storage == "bf16":
            raise ValueError(
                "train.table_weight_decay needs embeddings.storage fp32: bf16 rounds a decay away"
            )
        if self.train.table_weight_decay and self.train.ema is not None:
            raise ValueError(
                "train.table_weight_decay cannot be combined with train.ema, which updates only "
                "the rows of the batch"
            )
        if self.train.init_state == "all" and self.train.init_from is None:
            raise ValueError("train.init_state all needs a run to continue: set train.init_from")
        if self.train.precision == "tf32" and self.resources.device == "cpu":
            raise ValueError(
                "train.precision tf32 needs NVIDIA's GPUs, but resources.device is cpu; "
                "fp32 and bf16 run on both"
            )
        if self.resources.backend == "inline" and ranks != 1:
            raise ValueError(
                f"resources.backend inline trains one rank, but resources.num_ranks is {ranks}"
            )
        return self

    def _check_refit(self) -> None:
        if not self.train.refit:
            return
        if not self.data.valid:
            raise ValueError("train.refit trains on the validation rows, too: set data.valid")
        reasons = (
            ("data.windows", self.data.windows, "whose order a second training would break"),
            ("data.negatives", self.data.negatives < 1, "which does not apply to validation rows"),
            ("train.reduce_on_plateau", self.train.reduce_on_plateau, "which needs validations"),
            ("train.audit", self.train.audit, "which compares only training rows"),
        )
        for field, is_set, why in reasons:
            if is_set:
                raise ValueError(
                    f"train.refit cannot be combined with {field}, {why}; set train.refit to false"
                )
