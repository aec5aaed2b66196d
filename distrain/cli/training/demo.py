"""`distrain demo`: generates rows, prepares them and trains on them in one command."""

import json
import shlex
import shutil
from pathlib import Path

import click

from distrain.cli.options import COUNT, PATH, ranks_option
from distrain.cli.output import print_result, quiet_wanted
from distrain.errors import OutputError
from distrain.jobs.run_paths import RunPaths

JOB = """\
# The demo's job. Run it again with changes:
#   distrain train {job} --set train.optimizer.lr=0.01 --set 'model={{kind: mlp}}'
version: 1
name: demo
data:
  train: {train}
  valid: {valid}
model: {{kind: dlrm, embedding_dim: 16, bottom: [128, 64], top: [64, 128, 256]}}
train:
  global_batch_size: {batch_rows}
  epochs: 1
  optimizer: {{kind: adagrad, lr: 0.02}}
  log_every_steps: 5
evaluate: {{every_steps: {every_steps}}}
resources: {{num_ranks: {ranks}}}
"""

MADE = ("raw", "data", "job.yaml", "run")
"""The files and folders of a demo."""


@click.command()
@click.option("--rows", type=COUNT, default="1M", help="Training rows.")
@ranks_option(2)
@click.option("--out", type=PATH, default=Path("demo"), help="The folder of all files.")
@click.option("--quick", is_flag=True, help="Use a tenth of the rows.")
@click.option("--overwrite", is_flag=True, help="Replace OUT if it exists.")
def command(rows: int, ranks: int, out: Path, quick: bool, overwrite: bool) -> None:
    """Generate raw clicks, prepare them, and train a DLRM on a local Dask cluster.

    Writes a job spec, OUT/job.yaml, and prints and runs the commands `synth`, `prep` and `train`.
    The generated labels come from a planted model, so the best possible AUC is known. At the end
    the AUC of the trained model is compared with it.

    \b
    Examples:
      distrain demo
      distrain demo --quick --out /tmp/demo
    """
    rows = max(1, rows // 10 if quick else rows)
    raw, data, job, run = (out / name for name in MADE)
    spec = _job_text(job, data, rows, ranks)
    _clear_folder(out, overwrite)
    valid_rows = max(1, rows // 5)
    files = min(ranks, valid_rows)
    _run("synth", "--rows", rows, "--valid-rows", valid_rows, "--files", files, "--out", raw)
    _run("prep", raw / "train-*.tsv", "--valid", raw / "valid-*.tsv", "--out", data,
         "--workers", ranks)  # fmt: skip
    job.write_text(spec, encoding="utf-8")
    _run("train", job, "--run-dir", run)
    _compare(raw / "planted.json", RunPaths(run).summary)


def _job_text(job: Path, data: Path, rows: int, ranks: int) -> str:
    """Return the job spec as YAML; raise `SpecError` if the options make it invalid."""
    from distrain.jobs.spec.load import parse_spec, parse_yaml

    batch_rows = min(4096, max(64, rows // 240))
    text = JOB.format(
        job=shlex.quote(str(job)),
        # JSON strings are also YAML, for any path.
        train=json.dumps(str(data / "train")),
        valid=json.dumps(str(data / "valid")),
        ranks=ranks,
        batch_rows=batch_rows,
        every_steps=rows // batch_rows // 4 + 1,  # four validations, the last one at the end
    )
    parse_spec(parse_yaml(text))
    return text


def _clear_folder(out: Path, overwrite: bool) -> None:
    from distrain.storage.outputs import check_writable, translated_errors

    names = {path.name for path in out.iterdir()} if out.is_dir() else set()
    # Only files of a demo are removed, and only if the folder contains nothing else.
    ours = names <= set(MADE) and (out / "raw" / "planted.json").is_file()
    if names and not (overwrite and ours):
        raise OutputError(
            "the folder is not empty" if ours else "the folder contains other files than a demo's",
            where={"path": str(out), "holds": ", ".join(sorted(names)[:5])},
            hint="Choose another --out" + (", or pass --overwrite." if ours else "."),
        )
    with translated_errors(out):
        for name in names:
            path = out / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    check_writable(out)


def _run(*words: object) -> None:
    from distrain.cli.main import cli

    args = [str(word) for word in words]
    print_result(f"\n$ distrain {shlex.join(args)}", bold=True)
    args = ["--quiet", *args] if quiet_wanted() else args
    cli.main(args=args, prog_name="distrain", standalone_mode=False)


def _compare(planted: Path, summary: Path) -> None:
    best = json.loads(planted.read_text())["splits"]["valid"]["bayes_auc"]
    reached = json.loads(summary.read_text())["auc"]
    if reached is None or best == 0.5:
        print_result("\nToo few validation rows to compare AUCs: generate more --rows.")
        return
    share = (reached - 0.5) / (best - 0.5)
    print_result(
        f"\nThe best AUC that any model can expect on these validation rows is {best:.4f}; "
        f"this model reached {reached:.4f}, {share:.0%} of the way from 0.5."
    )
