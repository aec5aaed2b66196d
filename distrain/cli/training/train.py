"""`distrain train`: runs a job spec."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.options import (
    PATH,
    SCHEDULER_VARIABLE,
    connection_options,
    json_option,
    overrides_option,
)
from distrain.cli.outcome import print_outcome
from distrain.cli.output import (
    json_wanted,
    print_json,
    print_result,
    print_warning,
    progress_console,
)
from distrain.jobs.run_paths import new_job_id
from distrain.runs.sinks.choosing import known_sinks

if TYPE_CHECKING:
    from distrain.jobs.spec.job import JobSpec
    from distrain.launch.resuming import Resumption
    from distrain.launch.run import RunRequest


@click.command()
@click.argument("spec_file", metavar="[SPEC.yaml]", required=False, type=PATH)
@click.option(
    "--resume",
    "resumed_run",
    metavar="RUN",
    type=PATH,
    help="Resume the run in this directory, with its spec, from its newest checkpoint.",
)
@click.option(
    "--without-checkpoint",
    is_flag=True,
    help="With --resume: restart from step 0 if the run's checkpoints are missing.",
)
@overrides_option
@click.option(
    "--run-dir",
    type=PATH,
    help="The run directory; every worker must see it. Default: runs/JOB.",
)
@connection_options("Use this Dask cluster instead of a local one.")
@click.option(
    "--dashboard-address",
    default=":0",
    help="The address of a local cluster's dashboard; port 0 means any free port.",
)
@click.option(
    "--sink",
    "sinks",
    multiple=True,
    metavar="SINK",
    help=f"Pass records to one of {', '.join(known_sinks())}; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Check the job, print the resolved spec, stop.")
@click.option(
    "--detach",
    is_flag=True,
    help="Submit the job to a running cluster, print how to follow it, and end; the job continues.",
)
@json_option("Print the run's summary as JSON at its end; with --dry-run, the resolved spec.")
def command(
    spec_file: Path | None,
    resumed_run: Path | None,
    without_checkpoint: bool,
    overrides: tuple[str, ...],
    run_dir: Path | None,
    scheduler: str | None,
    dashboard_address: str,
    sinks: tuple[str, ...],
    dry_run: bool,
    detach: bool,
    as_json: bool,
) -> None:
    """Train a model from SPEC.yaml, one torch replica per Dask worker.

    Progress is shown on the screen. The run directory gets the resolved spec, records,
    summary.json, curves.png, checkpoints, one log per rank and attempt, and the model.

    A job that loses a rank or a worker is restarted from its last checkpoint. --resume continues a
    run that was left by a lost scheduler or a stopped command. The number of ranks may differ, but
    the data must be the same, and the spec must give the same training.

    A sink receives the records as they arrive. If it fails or hangs, it loses records, with a
    warning; training continues.

    \b
    Examples:
      distrain train job.yaml
      distrain train job.yaml --set train.optimizer.lr=0.02 --set resources.num_ranks=4
      distrain train job.yaml --scheduler tcp://10.0.0.5:8786 --run-dir /shared/runs/today
      distrain train job.yaml --set 'resources={backend: inline}'    # one rank, in this process
      distrain train job.yaml --sink tensorboard --sink mlflow:http://10.0.0.9:5000
      distrain train job.yaml --detach --scheduler tcp://10.0.0.5:8786 --run-dir /shared/runs/today
      torchrun --nproc-per-node 2 -m distrain train job.yaml --run-dir runs/a    # backend: env
      distrain train --resume runs/today
      distrain train --resume runs/today --set resources.num_ranks=2
    """
    from distrain.cli.job_progress import JobProgress, leave
    from distrain.jobs.spec.load import load_spec
    from distrain.launch.resuming import find_run, lead_or_follow, resume_or_begin
    from distrain.launch.run import RunRequest, train

    if (spec_file is None) == (resumed_run is None):
        raise click.UsageError("Give either a SPEC.yaml or --resume RUN.")
    if resumed_run is not None and run_dir is not None:
        raise click.UsageError("--resume gives the run directory: leave --run-dir out.")
    if without_checkpoint and resumed_run is None:
        raise click.UsageError("--without-checkpoint is for --resume.")
    if_interrupted("the job was not started")

    def job_with(*words: str) -> "tuple[str, JobSpec, Resumption | None]":
        fields = (*overrides, *words)
        if resumed_run is not None:
            return find_run(resumed_run, fields, without_checkpoint=without_checkpoint)
        assert spec_file is not None
        spec = load_spec(spec_file, fields)
        return new_job_id(spec.name), spec, None

    job_id, spec, resumed = job_with()
    root = resumed_run or run_dir or Path("runs") / job_id
    gang = None
    if spec.resources.backend == "env" and not detach:
        gang = lead_or_follow(spec, resumed_run or run_dir)
        job_id, spec, resumed = resume_or_begin(root, gang, job_with)
    ended = f"the job has ended; to complete {root}: distrain train --resume {root}"
    progress = JobProgress(progress_console(), _left_behind(spec, root), ended)
    for text in resumed.damaged if resumed else ():
        progress.say(f"warning: {text}")
    run = RunRequest(spec, root, job_id, scheduler, dashboard_address, resumed, sinks, gang=gang)
    if detach:
        _check_detachable(run)
    if dry_run:
        _print_checked(run)
        return
    if detach:
        leave(run)
        return
    print_outcome(root, lambda on_summary: train(run, progress, on_summary))


def _left_behind(spec: "JobSpec", root: Path) -> str:
    """Return the message about a job whose command ends without waiting for it."""
    if spec.resources.backend != "dask":  # it trained in this process
        return f"the job ended with this command; resume it: distrain train --resume {root}"
    return "the job may still run; `distrain jobs` lists a scheduler's jobs"


def _check_detachable(run: "RunRequest") -> None:
    if (backend := run.spec.resources.backend) != "dask":
        raise click.UsageError(f"--detach: a job with `backend: {backend}` runs in this process.")
    if run.scheduler is None:
        raise click.UsageError(
            "--detach needs a cluster that outlives this command: --scheduler ADDRESS, "
            f"or {SCHEDULER_VARIABLE}."
        )
    if run.sinks:
        raise click.UsageError("--detach: sinks need a command that follows the job.")


def _print_checked(run: "RunRequest") -> None:
    from distrain.jobs.spec.load import dump_yaml
    from distrain.workers.sources import connect

    checked = run.check()
    if run.scheduler is not None and run.spec.resources.backend == "dask":
        with connect(run.scheduler):
            pass  # it answers
    inputs = checked.inputs
    if run.resumed is not None:
        print_warning(f"# resumes from step {run.resumed.step or 0}")
    values = run.spec.model_dump(mode="json")
    if json_wanted():
        print_json(values)
    print_result(dump_yaml(values).rstrip("\n"))
    print_warning(f"# {inputs.train.num_rows:,} training rows")
    if inputs.valid:
        print_warning(f"# {inputs.valid.num_rows:,} validation rows")
    for note in checked.notes:
        print_warning(f"# note: {note}")
