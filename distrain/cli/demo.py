"""`distrain demo`: the whole way on generated data."""

import json
import shlex
from pathlib import Path

import click

from distrain.cli.params import COUNT

JOB = """\
# The demo's job. Run it again with changes:
#   distrain train {job} --set train.optimizer.lr=0.01 --set 'model={{kind: mlp}}'
version: 1
name: demo
data:
  train: {data}/train
  valid: {data}/valid
model: {{kind: dlrm, embedding_dim: 16, bottom: [128, 64], top: [64, 128, 256]}}
train:
  global_batch_size: 4096
  epochs: 1
  optimizer: {{kind: adagrad, lr: 0.02}}
  log_every_steps: 5
evaluate: {{every_steps: {every_steps}}}
resources: {{num_ranks: {ranks}}}
"""


@click.command()
@click.option("--rows", type=COUNT, default="1M", show_default=True, help="Training rows.")
@click.option("--ranks", default=2, show_default=True, help="Replicas that train together.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("demo"),
    show_default=True,
    help="Where everything goes.",
)
@click.option("--quick", is_flag=True, help="A tenth of the rows: to see that it works.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier demo in that folder.")
def command(rows: int, ranks: int, out: Path, quick: bool, overwrite: bool) -> None:
    """Generate raw clicks, prepare them, and train a DLRM on a local Dask cluster.

    Shows and runs the three commands that you would type. The generated labels come from a
    planted model, so the best possible AUC is known and the trained one is held against it.

    \b
    Examples:
      distrain demo
      distrain demo --quick --out /tmp/demo
    """
    rows = max(1, rows // 10 if quick else rows)
    _make_room(out, overwrite)
    raw, data, job, run = out / "raw", out / "data", out / "job.yaml", out / "run"
    valid_rows = max(1, rows // 5)
    _run("synth", "--rows", rows, "--valid-rows", valid_rows, "--files", ranks, "--out", raw)
    _run("prep", raw / "train-*.tsv", "--valid", raw / "valid-*.tsv", "--out", data,
         "--workers", ranks)  # fmt: skip
    every_steps = rows // 4096 // 4 + 1  # four times, the last one at the end
    job.write_text(JOB.format(job=job, data=data, ranks=ranks, every_steps=every_steps))
    _run("train", job, "--run-dir", run)
    _compare(raw / "planted.json", run / "summary.json")


def _make_room(out: Path, overwrite: bool) -> None:
    import shutil

    from distrain.errors import OutputError
    from distrain.storage import check_writable, translated_errors

    if out.is_dir() and any(out.iterdir()):
        ours = (out / "job.yaml").exists() or (out / "raw").exists()
        if not (overwrite and ours):
            raise OutputError(
                "the folder is not empty",
                where={"path": str(out)},
                hint="Choose another --out" + (", or pass --overwrite." if ours else "."),
            )
        with translated_errors(out):
            shutil.rmtree(out)
    check_writable(out)


def _run(*words: object) -> None:
    from distrain.cli.main import cli

    args = [str(word) for word in words]
    click.secho(f"\n$ distrain {shlex.join(args)}", bold=True)
    cli.main(args=args, prog_name="distrain", standalone_mode=False)


def _compare(planted: Path, summary: Path) -> None:
    best = json.loads(planted.read_text())["splits"]["valid"]["bayes_auc"]
    reached = json.loads(summary.read_text())["auc"]
    share = (reached - 0.5) / (best - 0.5)
    click.echo(
        f"\nThe best AUC that any model can expect on these validation rows is {best:.4f}; "
        f"this one reached {reached:.4f}: {share:.0%} of the way from guessing."
    )
