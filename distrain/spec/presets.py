"""Job specs to begin with, made for a folder that `distrain prep` wrote and a number of ranks."""

from collections.abc import Callable

from distrain.spec.data import DataSpec
from distrain.spec.job import JobSpec
from distrain.spec.models import DlrmSpec, MlpSpec
from distrain.spec.resources import ResourcesSpec
from distrain.spec.training import OptimizerSpec, TrainSpec


def criteo_mlp(data: str, num_ranks: int = 1) -> JobSpec:
    """The MLP of NVTabular's notebook "Scaling Criteo: Training with TensorFlow"."""
    return JobSpec(
        name="criteo-mlp",
        data=_prepared(data),
        model=MlpSpec(embedding_dim=16, hidden=(128, 128, 128)),
        train=TrainSpec(global_batch_size=65536, optimizer=OptimizerSpec(kind="sgd", lr=0.01)),
        resources=ResourcesSpec(num_ranks=num_ranks),
    )


def criteo_dlrm(data: str, num_ranks: int = 1) -> JobSpec:
    """A small DLRM: embeddings of 16, bottom 128-64, top 64-128-256, Adagrad."""
    return JobSpec(
        name="criteo-dlrm",
        data=_prepared(data),
        model=DlrmSpec(embedding_dim=16, bottom=(128, 64), top=(64, 128, 256)),
        train=TrainSpec(global_batch_size=8192, optimizer=OptimizerSpec(kind="adagrad", lr=0.02)),
        resources=ResourcesSpec(num_ranks=num_ranks),
    )


PRESETS: dict[str, Callable[[str, int], JobSpec]] = {
    "criteo-mlp": criteo_mlp,
    "criteo-dlrm": criteo_dlrm,
}


def _prepared(data: str) -> DataSpec:
    folder = data.rstrip("/")
    return DataSpec(train=(f"{folder}/train",), valid=(f"{folder}/valid",))
