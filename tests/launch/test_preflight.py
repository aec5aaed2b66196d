"""What can be told of a job is told before it starts: by a dry run, a plan and a training alike."""

import re
import sys
from contextlib import nullcontext
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import yaml
from click.testing import CliRunner
from small_jobs import make_spec, small_document

from distrain.cli.main import cli
from distrain.errors import DistrainError, SpecError
from distrain.launch.job_checks import JobChecks
from distrain.launch.spec_warnings import spec_warnings
from distrain.models import Blueprint, Embeddings, InputBlock
from distrain.models.blocks import MLPBlock, ParallelBlock
from distrain.models.heads import ItemRetrievalTask
from distrain.schema import Schema
from distrain.train.data.inputs import read_inputs
from distrain.train.data.job_tables import Inputs

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")

INLINE = "resources={backend: inline, num_ranks: 1, device: cpu}"


# Overrides, and what the errors name beside what golden messages say.
BAD_SPECS = {
    "an unknown table's values": "embeddings.inits={C99: 0.1}",
    "an unknown table": "embeddings.tables={C99: row_wise}",
    "tables larger than the machine": "model.embedding_dim=1000000",
    "tables larger than a rank may be": (
        "resources.memory_per_rank_gib=0.001", "model.embedding_dim=64",
    ),
    "layers larger than the machine": "model.hidden=[1000000, 1000000]",
    "layers larger than any memory": "model.hidden=[2147483647, 2147483647, 2147483647]",
    "a place for checkpoints that takes none": "checkpoint.dir=/proc/nope",
    "a place of an unknown filesystem": "checkpoint.dir=nosuch://bucket/x",
    "a function that may not be imported": "model={kind: custom, function: 'nomod:fn'}",
    "a function that is not there": "model={kind: custom, function: 'click_models:nothing'}",
    "a function that fails": "model={kind: custom, function: 'click_models:failing'}",
    "a metric that the model's task does not have": (
        "model={kind: custom, function: 'click_models:retrieving'}",
        "train.early_stopping={metric: auc}",
        "evaluate.every_steps=5",
    ),
    "no whole batch": ("train.global_batch_size=20000", "data.drop_last=true"),
    "a reader that cannot serve": "data.reader=cudf",
    "no files": ("data.train=nowhere", "data.schema=nowhere.pbtxt"),
    "graphs without a GPU": "train.cuda_graph=true",
    "three independent mistakes": (
        "data.cache_dir=/etc/passwd", "embeddings.tables={C99: row_wise}", "data.cache_size=much",
    ),
}  # fmt: skip


def failing(*_: object, **__: object) -> None:
    raise KeyError("no such column")


def retrieving(schema: Schema) -> Blueprint:
    towers = ParallelBlock({"user": MLPBlock([4]), "item": MLPBlock([4])}, aggregation=None)
    return Blueprint(InputBlock(schema, Embeddings(4)), towers, ItemRetrievalTask())


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    import click_models

    monkeypatch.setattr(click_models, "failing", failing, raising=False)
    monkeypatch.setattr(click_models, "retrieving", retrieving, raising=False)
    monkeypatch.setitem(sys.modules, "click_models", click_models)
    monkeypatch.setenv("DISTRAIN_MODEL_PACKAGES", "click_models")


@pytest.fixture
def job(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job that could be trained, in a folder with nothing else, which is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(small_document(prepared)))
    return tmp_path / "job.yaml"


def verdict(*words: object) -> str:
    """The error with which a command ends, as people see it."""
    done = CliRunner().invoke(cli, [str(word) for word in words])
    assert isinstance(done.exception, DistrainError), done.output
    assert done.exception.exit_code == 1
    return str(done.exception)


@pytest.mark.parametrize(
    ("name", "backend"), [*zip(BAD_SPECS, cycle(("dask", "inline")), strict=False)]
)
def test_every_command_says_the_same_and_leaves_nothing(
    job: Path, monkeypatch: pytest.MonkeyPatch, name: str, backend: str, wording: Any
) -> None:
    monkeypatch.setattr("distrain.launch.run.open_cluster", None)  # none may be started
    # The memory that is free changes from moment to moment.
    monkeypatch.setattr("distrain.train.planning.tables_plan.available_host_bytes", lambda: 8 << 30)
    bad = BAD_SPECS[name]
    overrides = [bad] if isinstance(bad, str) else [*bad]
    overrides = [INLINE, *overrides] if backend == "inline" else overrides
    options = [word for field in overrides for word in ("--set", field)]
    told = verdict("train", job, *options, "--dry-run", "--run-dir", "runs/a")
    if backend == "dask":
        assert told == verdict("plan", job, *options)
    else:
        assert told == verdict("train", job, *options, "--run-dir", "runs/a")
    wording(re.sub(r"\.py:\d+", ".py:LINE", told))
    assert list(job.parent.iterdir()) == [job]


@NO_GPU
def test_of_another_cluster_only_what_is_known_is_refused(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrain.workers.open_cluster.connect", nullcontext)
    options = ["--set", "resources.device=cuda", "--set", "data.cache_dir=/etc/passwd"]
    options += ["--set", "model.embedding_dim=1000000", "--scheduler", "tcp://10.0.0.5:8786"]
    done = CliRunner().invoke(cli, ["train", str(job), *options, "--dry-run"])
    assert done.exit_code == 0, done.output
    assert "resources.device, memory for the tables, data.cache_dir\n" in done.stderr
    options += ["--set", "embeddings.memory_gib=1", "--set", "resources.device=cpu"]
    told = verdict("train", job, *options, "--dry-run")
    assert told == verdict("plan", job, *options)
    assert "limit: embeddings.memory_gib" in told
    assert "resources.device" in verdict("train", job, "--set", "resources.device=cuda")


def test_a_taken_run_directory_and_a_bad_sink_are_told_together(job: Path) -> None:
    (job.parent / "run").mkdir()
    (job.parent / "run" / "spec.yaml").write_text("")
    options = ["--run-dir", "run", "--sink", "nowhere"]
    told = verdict("train", job, *options, "--dry-run")
    assert told == verdict("train", job, *options)
    assert all(word in told for word in ("2 mistakes", "already contains a run", "'nowhere'"))


def inputs_of(rows: int) -> Inputs:
    """What `spec_warnings` reads of training rows that have no file."""
    train = SimpleNamespace(num_rows=rows, only_label=None)
    return SimpleNamespace(train=train, valid=None, schema=Schema(()))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        (["global_batch_size=65536"], "train.global_batch_size to 512, train.epochs to 15"),
        (["global_batch_size=2048"], "train.global_batch_size to 512, train.epochs to 15"),
        (
            ["global_batch_size=256", "optimizer.kind=sgd"],
            "train.epochs to 8, train.optimizer to {kind: adam, lr: 0.002}",
        ),
        (["global_batch_size=256"], "train.epochs to 8"),
        (["global_batch_size=65536", "max_steps=1"], "train.global_batch_size to 512"),
        (["global_batch_size=2048", "max_steps=5"], None),
        (["global_batch_size=2048", "init_from=runs/a"], None),
        (["global_batch_size=512", "epochs=15"], None),
    ],
)
def test_a_job_of_few_steps_is_told_the_settings_with_which_it_learns(
    settings: list[str], remedy: str | None, tmp_path: Path
) -> None:
    settings = ["max_steps=null", *settings]
    spec = make_spec(tmp_path, *(f"train.{setting}" for setting in settings))
    inputs = inputs_of(10_500)
    told = [note for note in spec_warnings(spec, inputs) if "train." in note]
    assert [note.partition("set ")[2] for note in told] == ([remedy] if remedy else [])


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("train.table_optimizer={kind: adamw, weight_decay: 0.1}", "table_optimizer.weight_decay"),
        ("train.clip_groups=apart", "clip_groups"),
        ("train.clip_groups=apart;train.clip_grad_norm=1", None),
        ("train.schedule={decay: linear, decay_start_step: 315}", "decay begins at step 315"),
        ("train.schedule={decay: linear, decay_start_step: 314}", None),
        ("evaluate.every_steps=316", "every_steps is 316"),
        ("train.global_batch_size=20000", "20,000 exceeds the 10,500"),
        ("checkpoint.keep_best=auc", "checkpoint.keep_best is auc"),
    ],
)
def test_options_without_an_effect_are_noted(
    settings: str, told: str | None, tmp_path: Path
) -> None:
    train = "train={max_steps: null, global_batch_size: 512, epochs: 15}"
    stopping = ["train.early_stopping={metric: auc}"] if settings.startswith("evaluate") else []
    spec = make_spec(tmp_path, train, "evaluate.every_steps=null", *stopping, *settings.split(";"))
    notes = spec_warnings(spec, inputs_of(10_500))
    assert any(told in note for note in notes) if told else not notes


@pytest.mark.parametrize(
    ("batch_rows", "told"), [(200, "18 steps or fewer"), (100, None), (4_000, "3 windows have")]
)
def test_windows_of_few_steps_are_noted(prepared: Path, batch_rows: int, told: str | None) -> None:
    spec = make_spec(
        prepared,
        f"train={{global_batch_size: {batch_rows}, max_steps: null}}",
        "data={windows: {by: file}, drop_last: true}",
        *(f"data.{split}={prepared / split}" for split in ("train", "valid")),
    )
    notes = [note for note in spec_warnings(spec, read_inputs(spec)) if "windows" in note]
    assert [note for note in notes if told and told in note] if told else not notes


def test_nothing_is_allocated_to_find_out_what_fits(
    prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "distrain.models.embeddings.EmbeddingCollection.__init__",
        Mock(side_effect=AssertionError("a model was built")),
    )
    with pytest.raises(SpecError):
        JobChecks(make_spec(prepared, "model.embedding_dim=2000000000")).run()
