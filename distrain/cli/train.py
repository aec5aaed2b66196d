"""`distrain train`: run a job spec."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from distrain.cli.output import answer, document, json_wanted, progress_console, say, tell, warn
from distrain.cli.params import SCHEDULER_VARIABLE, json_option, scheduler_options
from distrain.cli.tls import tls_options

if TYPE_CHECKING:
    from distrain.running import Progress, Run
    from distrain.spec import JobSpec


@click.command()
@click.argument("spec_file", metavar="[SPEC.yaml]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--resume",
    "resumed_run",
    metavar="RUN",
    type=click.Path(path_type=Path),
    help="Go on with the run in this directory, with its spec, from its newest checkpoint.",
)
@click.option(
    "--without-checkpoint",
    is_flag=True,
    help="With --resume: begin anew at step 0 if the run's checkpoints are gone.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="SECTION.FIELD=VALUE",
    help="Set one field of the spec; may be repeated. The value is read as YAML.",
)
@click.option(
    "--run-dir",
    type=click.Path(path_type=Path),
    help="Where the run's files go; every worker must see it. Default: runs/JOB.",
)
@scheduler_options("Use this Dask cluster, not a local one.")
@tls_options
@click.option(
    "--dashboard-address",
    default=":0",
    show_default=True,
    help="Where a local cluster's dashboard listens; port 0 takes a free one.",
)
@click.option(
    "--sink",
    "sinks",
    multiple=True,
    metavar="SINK",
    help="Pass records to tensorboard, tensorboard:FOLDER, mlflow or mlflow:URI; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Check the job, print the resolved spec, stop.")
@click.option(
    "--detach",
    is_flag=True,
    help="Submit the job to a cluster that runs, say how to follow it, and end; it goes on alone.",
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
    """Train a model as SPEC.yaml says, one torch replica per Dask worker.

    Progress shows on the screen; the run directory gets the spec as resolved, metrics.jsonl,
    summary.json, curves.png, checkpoints, one log per rank and attempt, and the model.

    A rank or worker that is lost does not end the job: it is restarted from its last checkpoint.
    What a lost scheduler or a stopped command has left, --resume takes up: also with another number
    of ranks, but only with the same data, and a spec on which the same training follows.

    A sink gets the records as they come. One that fails or hangs loses them and is told of; the
    training goes on.

    \b
    Examples:
      distrain train job.yaml
      distrain train job.yaml --set train.optimizer.lr=0.02 --set resources.num_ranks=4
      distrain train job.yaml --scheduler tcp://10.0.0.5:8786 --run-dir /shared/runs/today
      distrain train job.yaml --set 'resources={backend: inline}'    # one rank, in this process
      distrain train job.yaml --sink tensorboard --sink mlflow:http://10.0.0.9:5000
      distrain train job.yaml --detach --scheduler tcp://10.0.0.5:8786 --run-dir /shared/runs/today
      distrain train --resume runs/today
      distrain train --resume runs/today --set resources.num_ranks=2
    """
    from distrain.cli.interrupts import if_interrupted
    from distrain.cli.live import LiveProgress
    from distrain.cli.outcome import tell_outcome
    from distrain.run_paths import new_job_id
    from distrain.running import Run, train
    from distrain.running.resuming import find_run
    from distrain.spec import load_spec, with_absolute_paths

    if (spec_file is None) == (resumed_run is None):
        raise click.UsageError("Give either a SPEC.yaml or --resume RUN.")
    if resumed_run is not None and run_dir is not None:
        raise click.UsageError("--resume names the run directory: leave --run-dir out.")
    if without_checkpoint and resumed_run is None:
        raise click.UsageError("--without-checkpoint is for --resume.")
    resumed = None
    if_interrupted("the job was not started")
    if resumed_run is not None:
        root = resumed_run
        job_id, spec, resumed = find_run(root, overrides, without_checkpoint=without_checkpoint)
    else:
        assert spec_file is not None
        spec = with_absolute_paths(load_spec(spec_file, overrides))
        job_id = new_job_id(spec.name)
        root = run_dir or Path("runs") / job_id
    ended = f"the job has ended; what {root} lacks is written by: distrain train --resume {root}"
    progress = LiveProgress(progress_console(), _left_behind(spec, root), ended)
    for text in resumed.damaged if resumed else ():
        progress.say(f"warning: {text}")
    run = Run(spec, root, job_id, scheduler, dashboard_address, resumed, sinks)
    if detach:
        _check_detachable(run)
    if dry_run:
        _print_checked(run)
        return
    if detach:
        _detach(run, progress)
        return
    tell_outcome(root, lambda on_summary: train(run, progress, on_summary))


def _left_behind(spec: "JobSpec", root: Path) -> str:
    """What becomes of a job whose command ends without waiting for it."""
    if spec.resources.backend == "inline":  # it trained in this process
        return f"the job ended with this command; go on with it: distrain train --resume {root}"
    return "the job was left to itself; `distrain jobs` lists what a scheduler still runs"


def _check_detachable(run: "Run") -> None:
    if run.spec.resources.backend == "inline":
        raise click.UsageError("--detach: a job with `backend: inline` runs in this process.")
    if run.scheduler is None:
        raise click.UsageError(
            "--detach: name a cluster that goes on without this command: --scheduler ADDRESS, "
            f"or {SCHEDULER_VARIABLE}."
        )
    if run.sinks:
        raise click.UsageError("--detach: sinks are fed by the command that follows a job.")


def _detach(run: "Run", progress: "Progress") -> None:
    from distrain.cli.interrupts import if_interrupted
    from distrain.cli.jobs.rendering import how_to_follow
    from distrain.running.detached import submit

    assert run.scheduler is not None
    follow = how_to_follow(run.job_id, run.scheduler)
    submit(run, progress, lambda: if_interrupted(f"job {run.job_id} is submitted; {follow}"))
    root = run.run_dir.absolute()
    if json_wanted():
        answer(job_id=run.job_id, run_dir=str(root), scheduler=run.scheduler)
    tell(f"job {run.job_id} is submitted; its run directory is {root}")
    say(follow)


def _print_checked(run: "Run") -> None:
    from distrain.spec.document import dump_yaml

    checked = run.check()
    inputs = checked.inputs
    if run.resumed is not None:
        warn(f"# goes on from step {run.resumed.step or 0}")
    values = run.spec.model_dump(mode="json")
    if json_wanted():
        document(values)
    tell(dump_yaml(values).rstrip("\n"))
    warn(f"# {inputs.train.num_rows:,} training rows")
    if inputs.valid:
        warn(f"# {inputs.valid.num_rows:,} validation rows")
    for note in checked.notes:
        warn(f"# note: {note}")
