"""The two public Criteo notebooks to reproduce, and the variants in which each is trained."""

import importlib.util
import os
from dataclasses import dataclass, field
from typing import Any

from benchmarks.end_to_end_bench.rows import Made

REPORTS_PER_EPOCH = 16
MOST_STEPS_PER_REPORT = 50
CORES_FOR_OTHERS = 3  # for the threads of training, routes and loader


@dataclass(frozen=True)
class Notebook:
    """A notebook's training.

    Attributes:
        name: Its short name in the tables.
        source: Its title.
        model: The job's model section.
        optimizer: The job's optimizer section.
        batch_rows: Rows of a step.
        published_rows_per_s: The rate in the notebook's output, on NVIDIA's GPU of that time.
        counts_validation: Whether that rate includes validation rows and their time.
        goal_rows_per_s: The goal on an H200.
    """

    name: str
    source: str
    model: dict[str, Any]
    optimizer: dict[str, Any]
    batch_rows: int
    published_rows_per_s: float
    counts_validation: bool
    goal_rows_per_s: float


NOTEBOOKS = (
    Notebook(
        "tensorflow",
        "Scaling Criteo: Training with TensorFlow",
        {"kind": "mlp", "embedding_dim": 16, "hidden": [128, 128, 128]},
        {"kind": "sgd", "lr": 0.01},  # Keras' default rate
        65_536,
        1.94e6,  # 3,046 steps in 103 s
        False,
        20e6,
    ),
    Notebook(
        "fastai",
        "Scaling Criteo: Training with FastAI",
        {"kind": "tabular", "embedding_dim": 16, "hidden": [512, 256], "outputs": 2},
        {"kind": "adam", "lr": 1.32e-2, "betas": [0.9, 0.99], "eps": 1e-5},  # fastai's
        400_000,
        0.66e6,
        True,
        10e6,
    ),
)


@dataclass(frozen=True)
class Way:
    """One variant of training: precision, compilation, kernels, reader.

    Attributes:
        name: Its name in the table.
        train: Fields of the job's train section.
        reader: The job's `data.reader`.
        environment: Additional environment variables of the process.
        quick: Whether `--quick` includes it.
        needs: Packages that it needs; without them it would silently be another variant.
    """

    name: str
    train: dict[str, Any] = field(default_factory=dict)
    reader: str = "arrow"
    environment: dict[str, str] = field(default_factory=dict)
    quick: bool = True
    needs: tuple[str, ...] = ()

    @property
    def lacks(self) -> list[str]:
        """The packages of `needs` that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


TRITON: dict[str, Any] = {"environment": {"DISTRAIN_TRITON": "1"}, "needs": ("triton",)}
TORCH: dict[str, Any] = {"environment": {"DISTRAIN_TRITON": "0"}}
CUDF: dict[str, Any] = {**TRITON, "reader": "cudf", "needs": ("triton", "pylibcudf", "rmm")}
EAGER = {"cuda_graph": False}
BF16_GRAPH = {"cuda_graph": True, "precision": "bf16"}
ON_GPU = (
    Way("default"),
    Way("graph, bf16, triton", BF16_GRAPH, **TRITON),
    Way("eager, fp32", EAGER),
    Way("graph, bf16", BF16_GRAPH, quick=False, **TORCH),
    Way("graph, fp32", {"cuda_graph": True}, quick=False, **TORCH),
    Way("graph, bf16, triton, cudf", BF16_GRAPH, quick=False, **CUDF),
    Way("eager, tf32", {**EAGER, "precision": "tf32"}, quick=False),
    Way("eager, bf16", {**EAGER, "precision": "bf16"}, quick=False),
)
ON_CPU = (
    Way("eager, fp32"),
    Way("eager, bf16", {"precision": "bf16"}, quick=False),
)


def ways(device: str, quick: bool) -> tuple[Way, ...]:
    """Return the variants for a device, the most informative ones first."""
    every = ON_GPU if device == "cuda" else ON_CPU
    return tuple(way for way in every if way.quick or not quick)


def steps_per_epoch(notebook: Notebook, made: Made) -> int:
    """Return the number of training steps of an epoch; the last step may have fewer rows."""
    return -(-made.rows // notebook.batch_rows)


def windows_per_epoch(notebook: Notebook, made: Made) -> int:
    """Return the number of reports of an epoch."""
    per_epoch = steps_per_epoch(notebook, made)
    return -(-per_epoch // steps_per_report(per_epoch))


def job_document(
    notebook: Notebook, way: Way, made: Made, device: str, epochs: int
) -> dict[str, Any]:
    """Return the job document: one rank, validation after each epoch, a model, no checkpoints."""
    per_epoch = steps_per_epoch(notebook, made)
    decode_threads = max(1, (os.cpu_count() or 1) - CORES_FOR_OTHERS)
    return {
        "name": notebook.name,
        "data": {
            "train": str(made.folder / "train"),
            "valid": str(made.folder / "valid"),
            "schema": str(made.folder / "schema.pbtxt"),
            "reader": way.reader,
            "decode_threads": decode_threads,
        },
        "model": notebook.model,
        "train": {
            "global_batch_size": notebook.batch_rows,
            "epochs": epochs,
            "optimizer": notebook.optimizer,
            "log_every_steps": steps_per_report(per_epoch),
            **way.train,
        },
        "evaluate": {"every_steps": per_epoch},
        # The tables fit. Memory that other processes use must not change their placement.
        "embeddings": {"placement": "replicated", "memory_gib": 4096},
        "resources": {"backend": "inline", "num_ranks": 1, "device": device},
        "checkpoint": {"at_end": False, "every_s": None},
    }


def steps_per_report(per_epoch: int) -> int:
    """Return the number of steps between two reports. Each report waits for the device.

    >>> steps_per_report(763), steps_per_report(125), steps_per_report(3)
    (47, 7, 1)
    """
    return max(1, min(MOST_STEPS_PER_REPORT, per_epoch // REPORTS_PER_EPOCH))
