"""The number of ranks changes nothing but the order of sums, on a cluster and inline."""

from pathlib import Path

import pytest
from distributed import Client
from small_jobs import make_spec

from distrain.jobs.job_view import JobView, Record
from distrain.jobs.run_paths import new_job_id
from distrain.launch.inline import run_inline
from distrain.launch.job_handle import JobHandle, raise_for_state

STEPS = 50


@pytest.mark.slow
def test_one_two_and_four_ranks_and_inline_follow_the_same_loss_curve(
    cluster: Client, prepared: Path, tmp_path: Path
) -> None:
    """`tests/train/step/test_step_ranks.py` compares steps in float64.

    Where an input of a ReLU comes as close to 0 as rounding reaches, rounding decides its sign, and
    curves part; so the layers are narrow. Adagrad's first update of a value is its rate times the
    gradient's sign, however small the gradient: without a larger eps, rounding noise around zero
    becomes a whole step.
    """
    curves = {}
    for ranks in (1, 2, 4):
        spec = make_spec(
            prepared,
            "model={kind: dlrm, embedding_dim: 4, bottom: [8], top: [16]}",
            "train.optimizer={kind: adagrad, lr: 0.01, eps: 1.0e-6}",
            f"train.max_steps={STEPS}",
            "train.log_every_steps=1",
            # 200 is no multiple of 24 lanes, and 10,500 rows give a last batch of 100
            f"resources.num_ranks={ranks}",
        )
        records: list[Record] = []
        job = JobHandle(cluster, new_job_id(spec.name))
        job.submit(spec, tmp_path / f"{ranks}")
        raise_for_state(job.watch(lambda view, records=records: records.extend(view.records)))
        curves[ranks] = records
        if ranks == 1:
            views: list[JobView] = []
            run_inline(spec, tmp_path / "inline", "job", views.append)
            inline = [record for view in views for record in view.records]
            scores = [(r.split, r.step, r.rows, r.loss, r.auc) for r in inline]
            assert scores == [(r.split, r.step, r.rows, r.loss, r.auc) for r in records]
    alone, *others = (
        [(r.step, r.rows, r.loss) for r in records if r.split == "train"]
        for records in curves.values()
    )
    assert [step for step, _, _ in alone] == list(range(1, STEPS + 1))
    losses = [loss for _, _, loss in alone]
    assert losses[-1] < losses[0]
    for found in others:
        assert [row[:2] for row in found] == [row[:2] for row in alone]
        assert [loss for _, _, loss in found] == pytest.approx(losses, rel=1e-6)
