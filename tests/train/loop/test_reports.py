"""What a rank reports on its way, and when."""

from pathlib import Path

from small_jobs import make_spec
from trained import trained

from distrain.launch.inline import run_inline

INLINE = "resources={backend: inline, num_ranks: 1}"


def test_a_validation_knows_how_many_rows_were_trained_before_it(
    prepared: Path, tmp_path: Path
) -> None:
    spec = make_spec(
        prepared, INLINE, "train.max_steps=7", "train.log_every_steps=5", "evaluate.every_steps=3"
    )
    views = []
    run_inline(spec, tmp_path, "job", views.append)
    records = [record for view in views for record in view.records]
    assert [(r.split, r.step, r.rows_total) for r in records] == [
        ("train", 3, 600),
        ("valid", 3, 600),
        ("train", 5, 1000),
        ("train", 6, 1200),
        ("valid", 6, 1200),
        ("train", 7, 1400),
        ("valid", 7, 1400),
    ]
    assert [r.rows for r in records if r.split == "train"] == [600, 400, 200, 200]


def test_no_epoch_is_begun_that_is_not_trained_on(prepared: Path, tmp_path: Path) -> None:
    spec = make_spec(
        prepared,
        INLINE,
        "train={global_batch_size: 3500, epochs: 5, max_steps: 6, log_every_steps: 2147483647}",
        "evaluate.at_end=false",
    )
    trainer, _ = trained(spec, tmp_path)
    assert trainer.loader.num_steps == 3
    assert trainer.loader.stats.epochs == 2
    assert (
        len(trainer.open_report.tensors()["losses"]) == 6
    )  # not one place for each of two billion steps
