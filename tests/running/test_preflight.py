"""What can be told of a job is told before it starts: by a dry run, a plan and a training alike."""

import sys
from contextlib import nullcontext
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
import torch
import yaml
from click.testing import CliRunner
from small_jobs import make_spec, small_document

from distrain.cli.main import cli
from distrain.cli.training.demo import _job_text
from distrain.errors import DistrainError, SpecError
from distrain.models import Blueprint, Embeddings, InputBlock
from distrain.models.blocks import MLPBlock, ParallelBlock
from distrain.models.custom import handed_over, name_of
from distrain.models.heads import BinaryClassificationTask, ItemRetrievalTask
from distrain.running.checks import JobChecks
from distrain.running.surprises import surprises
from distrain.schema import Schema
from distrain.spec import parse_spec, parse_yaml
from distrain.train.data import Inputs, read_inputs

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")

INLINE = "resources={backend: inline, num_ranks: 1, device: cpu}"

# Overrides, and words that the error must have.
BAD_SPECS = {
    "an unknown table's values": (["embeddings.inits={C99: 0.1}"], ["names no tables: C99"]),
    "an unknown table": (["embeddings.tables={C99: row_wise}"], ["'C99'", "no categorical column"]),
    "tables larger than the machine": (
        ["model.embedding_dim=1000000"],
        ["embedding tables", "weights: ", "optimizer state: ", "limit: ", "widths of at most"],
    ),
    "tables larger than a rank may be": (
        ["resources.memory_per_rank_gib=0.001", "model.embedding_dim=64"],
        ["embedding tables", "limit: resources.memory_per_rank_gib"],
    ),
    "layers larger than the machine": (
        ["model.hidden=[1000000, 1000000]"],
        ["a rank holds at least", "dense parameters", "limit: what this machine has free"],
    ),
    "layers larger than any memory": (
        ["model.hidden=[2147483647, 2147483647, 2147483647]"],
        ["more values than any memory"],
    ),
    "a cache that is a file": (["data.cache_dir=/etc/passwd"], ["data.cache_dir", "/etc/passwd"]),
    "a place for checkpoints that takes none": (
        ["checkpoint.dir=/proc/nope"],
        ["checkpoint.dir", "could not write", "/proc/nope"],
    ),
    "a place of an unknown filesystem": (
        ["checkpoint.dir=nosuch://bucket/x"],
        ["checkpoint.dir", "nosuch"],
    ),
    "a function that may not be imported": (
        ["model={kind: custom, function: 'nomod:fn'}"],
        ["nomod", "DISTRAIN_MODEL_PACKAGES"],
    ),
    "a function that is not there": (
        ["model={kind: custom, function: 'click_models:nothing'}"],
        ["cannot be imported", "click_models"],
    ),
    "a function that fails": (
        ["model={kind: custom, function: 'click_models:failing'}"],
        ["the model's function failed", "click_models:failing"],
    ),
    "a metric that the model's task does not have": (
        [
            "model={kind: custom, function: 'click_models:retrieving'}",
            "train.early_stopping={metric: auc}",
            "evaluate.every_steps=5",
        ],
        ["train.early_stopping judges validations by auc", "ItemRetrievalTask does not have"],
    ),
    "no whole batch": (
        ["train.global_batch_size=20000", "data.drop_last=true"],
        ["10500 rows do not fill one global batch of 20000", "drop_last"],
    ),
    "a reader that cannot serve": (["data.reader=packed"], ["'packed'", "ordinary parquet"]),
    "no files": (["data.train=nowhere", "data.schema=nowhere.pbtxt"], ["nowhere", "nowhere.pbtxt"]),
    "graphs without a GPU": (["train.cuda_graph=true"], ["train.cuda_graph", "NVIDIA"]),
    "three independent mistakes": (
        ["data.cache_dir=/etc/passwd", "embeddings.tables={C99: row_wise}", "data.cache_size=much"],
        ["3 mistakes:", "/etc/passwd", "C99", "data.cache_size"],
    ),
}


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
    job: Path, monkeypatch: pytest.MonkeyPatch, name: str, backend: str
) -> None:
    monkeypatch.setattr("distrain.running.run.open_cluster", None)  # none may be started
    # The memory that is free changes from moment to moment.
    monkeypatch.setattr("distrain.train.planning.tables_plan.available_host_bytes", lambda: 8 << 30)
    overrides, culprits = BAD_SPECS[name]
    options = [word for field in overrides for word in ("--set", field)]
    if backend == "inline":
        options = ["--set", INLINE, *options]
    told = verdict("train", job, *options, "--dry-run", "--run-dir", "runs/a")
    assert told == verdict("plan", job, *options)
    assert told == verdict("train", job, *options, "--run-dir", "runs/a")
    for culprit in culprits:
        assert culprit in told
    assert list(job.parent.iterdir()) == [job]


@NO_GPU
@pytest.mark.parametrize("backend", ["dask", "inline"])
def test_a_gpu_that_is_not_there(job: Path, backend: str) -> None:
    options = ["--set", f"resources={{backend: {backend}, num_ranks: 1, device: cuda}}"]
    told = verdict("train", job, *options, "--dry-run")
    assert told == verdict("plan", job, *options) == verdict("train", job, *options)
    assert "resources.device is cuda, but torch finds no GPU" in told
    assert list(job.parent.iterdir()) == [job]


@NO_GPU
def test_of_another_cluster_only_what_is_known_is_refused(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrain.cluster.connect", nullcontext)
    options = ["--set", "resources.device=cuda", "--set", "data.cache_dir=/etc/passwd"]
    options += ["--set", "model.embedding_dim=1000000", "--scheduler", "tcp://10.0.0.5:8786"]
    done = CliRunner().invoke(cli, ["train", str(job), *options, "--dry-run"])
    assert done.exit_code == 0, done.output
    assert "# note: not checked, as workers may be on other machines" in done.stderr
    assert "resources.device, memory for the tables, data.cache_dir\n" in done.stderr
    options += ["--set", "embeddings.memory_gib=1", "--set", "resources.device=cpu"]
    told = verdict("train", job, *options, "--dry-run")
    assert told == verdict("plan", job, *options)
    assert "limit: embeddings.memory_gib" in told


def test_a_taken_run_directory_and_an_unusable_sink_are_told_together(job: Path) -> None:
    (job.parent / "run").mkdir()
    (job.parent / "run" / "spec.yaml").write_text("")
    options = ["--run-dir", "run", "--sink", "nowhere"]
    told = verdict("train", job, *options, "--dry-run")
    assert told == verdict("train", job, *options)
    assert "2 mistakes:" in told
    assert "holds a run already" in told
    assert "no sink 'nowhere'" in told


def test_a_batch_of_more_rows_than_there_are_is_noted(job: Path) -> None:
    options = ["--set", "train.global_batch_size=20000"]
    for command in (["train", str(job), "--dry-run"], ["plan", str(job)]):
        done = CliRunner().invoke(cli, [*command, *options])
        assert done.exit_code == 0, done.output
        assert "20,000 is more than the 10,500 training rows: an epoch is one step" in done.stderr


def inputs_of(rows: int) -> Inputs:
    """What `surprises` reads of training rows that have no file."""
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
    told = [note for note in surprises(spec, inputs) if "train." in note]
    assert [note.partition("set ")[2] for note in told] == ([remedy] if remedy else [])


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("table_optimizer: {kind: adamw, weight_decay: 0.1}", "table_optimizer.weight_decay has"),
        ("clip_groups: apart", "clip_groups apart has no effect"),
        ("clip_groups: apart, clip_grad_norm: 1", None),
        ("schedule: {decay: linear, decay_start_step: 315}", "decay begins at step 315, and"),
        ("schedule: {decay: linear, decay_start_step: 314}", None),
        ("early_stopping: {metric: auc}", "every_steps is 316, and the job takes 315 steps"),
    ],
)
def test_options_without_an_effect_are_noted(
    settings: str, told: str | None, tmp_path: Path
) -> None:
    train = f"train={{max_steps: null, global_batch_size: 512, epochs: 15, {settings}}}"
    spec = make_spec(tmp_path, train, "evaluate.every_steps=316")
    inputs = inputs_of(10_500)
    notes = surprises(spec, inputs)
    assert [told in note for note in notes] == [True] if told else not notes


@pytest.mark.parametrize(
    ("batch_rows", "told"),
    [
        (
            200,
            "half of the windows have 18 steps or fewer, in which models hardly learn what is new "
            "in them: set train.global_batch_size to 32, or train.optimizer.lr or",
        ),
        (100, None),
        (4_000, "3 windows have fewer rows than train.global_batch_size (4,000)"),
    ],
)
def test_windows_of_few_steps_are_noted(prepared: Path, batch_rows: int, told: str | None) -> None:
    spec = make_spec(
        prepared,
        f"train={{global_batch_size: {batch_rows}, max_steps: null}}",
        "data={windows: {by: file}, drop_last: true}",
        *(f"data.{split}={prepared / split}" for split in ("train", "valid")),
    )
    notes = [note for note in surprises(spec, read_inputs(spec)) if "windows" in note]
    assert [note for note in notes if told and note.startswith(told)] if told else not notes


@pytest.mark.parametrize("rows", [100_000, 1_000_000])
def test_a_demo_takes_enough_steps_quick_or_not(rows: int) -> None:
    spec = parse_spec(parse_yaml(_job_text(Path("job.yaml"), Path("data"), rows, 2)))
    inputs = inputs_of(rows)
    assert surprises(spec, inputs) == []


def test_a_validation_of_very_many_steps_is_noted(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    valid = Path(yaml.safe_load(job.read_text())["data"]["valid"])
    rows = sum(pq.read_metadata(file).num_rows for file in valid.glob("*.parquet"))
    monkeypatch.setattr("distrain.running.surprises._MANY_STEPS", -(-rows // 300) - 1)
    for batch_rows, is_noted in ((300, True), (400, False)):
        options = ["--set", f"train.global_batch_size={batch_rows}"]
        done = CliRunner().invoke(cli, ["plan", str(job), *options])
        assert done.exit_code == 0, done.output
        told = f"a validation takes {-(-rows // 300)} steps of train.global_batch_size (300) rows"
        assert (told in done.stderr) == is_noted


@pytest.mark.parametrize(
    ("valid", "told"), [("data/valid", "the last step alone is validated"), (None, "nothing is")]
)
def test_a_best_model_without_validations_to_choose_from_is_noted(
    job: Path, valid: str | None, told: str
) -> None:
    document = yaml.safe_load(job.read_text())
    document["data"]["valid"] = valid and document["data"]["valid"]
    document["evaluate"] = {}
    job.write_text(yaml.safe_dump(document))
    command = ["train", str(job), "--dry-run", "--set", "checkpoint.keep_best=auc"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    assert f"checkpoint.keep_best is auc, but evaluate.every_steps is null: {told}" in done.stderr
    assert "keep_best" not in CliRunner().invoke(cli, command[:3]).stderr


def test_a_function_that_was_handed_over_serves_this_process_alone(prepared: Path) -> None:
    def mine(schema: Schema) -> Blueprint:
        return Blueprint(InputBlock(schema), MLPBlock([4]), BinaryClassificationTask())

    model = f"model={{kind: custom, function: '{name_of(mine)}'}}"
    with handed_over(mine):
        JobChecks(make_spec(prepared, model, INLINE)).run()
        with pytest.raises(SpecError, match="may not be imported"):
            JobChecks(make_spec(prepared, model)).run()


def test_nothing_is_allocated_to_find_out_what_fits(
    prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a model was built")

    monkeypatch.setattr("distrain.embeddings.EmbeddingCollection.__init__", refuse)
    with pytest.raises(SpecError, match="embedding tables"):
        JobChecks(make_spec(prepared, "model.embedding_dim=2000000000")).run()
