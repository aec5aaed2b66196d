"""The number of ranks changes nothing but the order of sums; equal runs are bit-identical."""

from pathlib import Path

import pytest
from distributed import Client
from safetensors.numpy import load_file
from small_jobs import make_spec

from distrain.jobs.view import Record
from distrain.run_paths import new_job_id
from distrain.spec import JobSpec
from distrain.submission.handle import JobHandle, raise_for_state
from distrain.submission.inline import run_inline

STEPS = 50
# Where an input of a ReLU comes as close to 0 as rounding reaches, rounding decides its sign, and
# curves part. Of the millions of inputs that the models' usual widths have in so many steps, about
# one does; so the layers are narrow here; `tests/train/step/test_curve_ranks.py` has usual ones.
MODELS = {
    "mlp": "{kind: mlp, embedding_dim: 4, hidden: [16]}",
    "dlrm": "{kind: dlrm, embedding_dim: 4, bottom: [8], top: [16]}",
}


def train(client: Client, spec: JobSpec, run_dir: Path) -> list[Record]:
    records: list[Record] = []
    job = JobHandle(client, new_job_id(spec.name))
    job.submit(spec, run_dir)
    view = job.watch(lambda view: records.extend(view.records))
    raise_for_state(view)
    return records


def curve(records: list[Record]) -> list[tuple[int, int, float | None]]:
    return [(r.step, r.rows, r.loss) for r in records if r.split == "train"]


@pytest.mark.parametrize(
    ("kind", "optimizer"),
    [
        ("dlrm", "adagrad"),
        pytest.param("dlrm", "adam", marks=pytest.mark.release),
        pytest.param("mlp", "sgd", marks=pytest.mark.release),
    ],
)
@pytest.mark.slow
def test_one_two_and_four_ranks_follow_the_same_loss_curve(
    cluster: Client, prepared: Path, tmp_path: Path, kind: str, optimizer: str
) -> None:
    # Adagrad's first update of a value is its rate times the gradient's sign, however small the
    # gradient: without a larger eps, rounding noise around zero becomes a whole step.
    curves = {}
    for ranks in (1, 2, 4):
        spec = make_spec(
            prepared,
            f"model={MODELS[kind]}",
            f"train.optimizer={{kind: {optimizer}, lr: 0.01, eps: 1.0e-6}}",
            f"train.max_steps={STEPS}",
            "train.log_every_steps=1",
            # 200 is no multiple of 24 lanes, and 10,500 rows give a last batch of 100
            f"resources.num_ranks={ranks}",
        )
        curves[ranks] = curve(train(cluster, spec, tmp_path / f"{ranks}"))
    assert [step for step, _, _ in curves[1]] == list(range(1, STEPS + 1))
    losses = [loss for _, _, loss in curves[1]]
    assert losses[-1] < losses[0]
    for ranks in (2, 4):
        assert [row[:2] for row in curves[ranks]] == [row[:2] for row in curves[1]]
        assert [loss for _, _, loss in curves[ranks]] == pytest.approx(losses, rel=1e-6)


@pytest.mark.parametrize(
    "optimizer",
    ["adagrad", *(pytest.param(kind, marks=pytest.mark.release) for kind in ("sgd", "adam"))],
)
@pytest.mark.slow
def test_two_runs_with_equal_ranks_are_bit_identical(
    cluster: Client, prepared: Path, tmp_path: Path, optimizer: str
) -> None:
    spec = make_spec(
        prepared, f"train.optimizer.kind={optimizer}", "train.epochs=2", "train.max_steps=70"
    )
    outcomes = []
    for name in ("first", "second"):
        records = train(cluster, spec, tmp_path / name)
        weights = load_file(tmp_path / name / "model" / "weights.safetensors")
        scores = [(r.split, r.step, r.rows, r.loss, r.auc) for r in records]
        outcomes.append((scores, {k: v.tobytes() for k, v in weights.items()}))
    assert outcomes[0] == outcomes[1]


@pytest.mark.slow
def test_inline_equals_one_rank_on_a_cluster(
    cluster: Client, prepared: Path, tmp_path: Path
) -> None:
    spec = make_spec(prepared, "resources.num_ranks=1")
    on_cluster = train(cluster, spec, tmp_path / "dask")
    inline: list[Record] = []
    run_inline(spec, tmp_path / "inline", "job", lambda view: inline.extend(view.records))
    assert [(r.split, r.loss, r.auc) for r in inline] == [
        (r.split, r.loss, r.auc) for r in on_cluster
    ]


@pytest.mark.slow
def test_a_rank_without_rows_in_the_last_step_keeps_step(
    cluster: Client, prepared: Path, tmp_path: Path
) -> None:
    # 10,500 = 4 * 2,624 + 4: the last step has 4 rows, in the lanes of the first ranks only
    spec = make_spec(
        prepared,
        "train.global_batch_size=2624",
        "train.max_steps=null",
        "train.epochs=2",
        "train.log_every_steps=1",
        "resources.num_ranks=4",
    )
    records = train(cluster, spec, tmp_path)
    assert [row[1] for row in curve(records)] == [2624, 2624, 2624, 2624, 4] * 2
    assert records[-1].rows_total == 2 * 10_500
