"""Training on a GPU: the same result as on the CPU, the same bits twice, and a real cluster."""

from pathlib import Path

import pytest
import torch
from small_jobs import make_spec

from distrain.jobs.job_view import JobView, Record
from distrain.launch.inline import run_inline
from distrain.launch.job_handle import JobHandle, raise_for_state
from distrain.train.step.recorder import CudaStepGraph
from distrain.workers.local import count_gpus, local_cluster

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no NVIDIA GPU"),
]


def train_inline(prepared: Path, run_dir: Path, *overrides: str) -> tuple[JobView, list[Record]]:
    spec = make_spec(
        prepared,
        "resources={backend: inline, num_ranks: 1}",
        "train.log_every_steps=1",
        *overrides,
    )
    records: list[Record] = []
    view = run_inline(spec, run_dir, "job", lambda view: records.extend(view.records))
    raise_for_state(view)
    return view, records


NAMED = "mlp tabular dlrm dcn dcn_v2 deepfm wide_deep gdcn masknet autoint xdeepfm finalmlp"


def losses(prepared: Path, root: Path, *overrides: str) -> dict[str, list[float | None]]:
    """The losses of the steps on each device."""
    found = {}
    for device in ("cpu", "cuda"):
        words = ("train.max_steps=8", f"resources.device={device}", *overrides)
        _, records = train_inline(prepared, root / device, *words)
        found[device] = [record.loss for record in records]
        assert (root / device / "model").is_dir()
    return found


@pytest.mark.parametrize("kind", NAMED.split())
def test_a_named_model_is_recorded_and_follows_the_cpu(kind, prepared, tmp_path, monkeypatch):
    recorded, record = [], CudaStepGraph.record
    monkeypatch.setattr(
        CudaStepGraph, "record", lambda self, run: recorded.append(record(self, run))
    )
    model = f"model={{kind: {kind}, embedding_dim: 4}}"
    found = losses(prepared, tmp_path, model, "train.optimizer={kind: sgd, lr: 0.05}")
    assert found["cuda"] == pytest.approx(found["cpu"], rel=1e-3)
    assert len(recorded) == 1


def test_host_cached_tables_follow_those_on_the_cpu(prepared: Path, tmp_path: Path) -> None:
    words = ("model={kind: mlp, embedding_dim: 4}", "embeddings.placement=host_cached")
    found = losses(prepared, tmp_path, *words, "train.optimizer={kind: adam, lr: 0.01}")
    assert found["cuda"] == pytest.approx(found["cpu"], rel=1e-3)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_two_gpu_runs_are_bit_identical(prepared: Path, tmp_path: Path, optimizer: str) -> None:
    weights = []
    for name in ("first", "second"):
        view, _ = train_inline(
            prepared,
            tmp_path / name,
            "resources.device=cuda",
            f"train.optimizer.kind={optimizer}",
        )
        weights.append((Path(view.model_path or "") / "weights.safetensors").read_bytes())
    assert weights[0] == weights[1]


def test_a_cuda_cluster_trains_over_nccl(prepared: Path, tmp_path: Path) -> None:
    pytest.importorskip("dask_cuda", reason="dask-cuda is not installed")
    ranks = max(n for n in (1, 2, 4, 8) if n <= count_gpus())
    spec = make_spec(prepared, f"resources={{num_ranks: {ranks}, device: cuda}}")
    with local_cluster(ranks, 1, "cuda", ":0") as client:
        job = JobHandle(client, "job")
        job.submit(spec, tmp_path)
        view = job.watch(lambda _: None)
    raise_for_state(view)
