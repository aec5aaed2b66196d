"""`distrain train`: runs a job spec."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.options import (
    PATH,
    PLACE,
    SCHEDULER_VARIABLE,
    bad_lines_options,
    connection_options,
    given_options,
    json_option,
    overrides_option,
    table_options,
)
from distrain.cli.outcome import print_outcome
from distrain.cli.output import (
    print_json,
    print_remark,
    print_result,
    print_warning,
    progress_console,
)
from distrain.cli.progress_bars import WorkProgress
from distrain.formatting import command_line
from distrain.jobs.run_paths import PREPARED, RunPaths, new_job_id
from distrain.jobs.target_names import LABEL
from distrain.runs.sinks.choosing import known_sinks

if TYPE_CHECKING:
    from distrain.jobs.spec.job import JobSpec
    from distrain.launch.resuming import Resumption
    from distrain.launch.run import RunRequest
    from distrain.launch.tables import TableJob


@click.command()
@click.argument("sources", metavar="[SPEC.yaml | TABLE...]", nargs=-1)
@table_options
@click.option(
    "--valid",
    multiple=True,
    metavar="SHARE|ROWS|SPLIT|FILE",
    help="With --target: the validation rows. A share of the rows (drawn at random, or the latest "
    "with --time), a number of last rows, a split as in a features document ('{by: hash, column: "
    "user, share: 0.1}'), files, or none. Default: about a tenth; the latest rows if there is a "
    "column of times.",
)
@click.option(
    "--test",
    multiple=True,
    metavar="SHARE|ROWS|SPLIT|FILE",
    help="With --target: the rows for a final evaluation, as for --valid. They are used for "
    "nothing else. Default: none.",
)
@click.option(
    "--model", help="With --target: the model, such as mlp. Default: chosen for the table."
)
@click.option(
    "--features",
    type=PLACE,
    metavar="FILE",
    help="The table's features document, instead of --target and inference.",
)
@bad_lines_options
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
    help="The run folder; all workers must be able to access it. Default: runs/JOB.",
)
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace the run in --run-dir, if there is one. Not with `backend: env`.",
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
@click.pass_context
def command(
    context: click.Context,
    /,
    sources: tuple[str, ...],
    resumed_run: Path | None,
    without_checkpoint: bool,
    overrides: tuple[str, ...],
    run_dir: Path | None,
    overwrite: bool,
    scheduler: str | None,
    dashboard_address: str,
    sinks: tuple[str, ...],
    dry_run: bool,
    detach: bool,
    **of_table: Any,
) -> None:
    """Train a model from SPEC.yaml, or on a TABLE; one torch replica per Dask worker.

    With --target, TABLE is files, folders, globs or URLs of parquet, CSV or JSON lines. The command
    infers the columns as `distrain prep --infer` does, prepares the rows and fits a job to them. It
    prints these decisions, and writes them to features.yaml and job.yaml in the run folder.
    Prepared rows are kept in .prepared beside the run folder and reused. Without --scheduler the
    job trains in this process.

    Progress is shown on the screen. The run folder receives the resolved spec, records,
    summary.json, curves.png, checkpoints, one log per rank and attempt, and the model.

    A job that loses a rank or a worker is restarted from its last checkpoint. --resume continues a
    run whose scheduler was lost or whose command was stopped. --set may then change the number of
    ranks; data and training settings must stay the same.

    A sink receives the records as they arrive. If it fails or hangs, it loses records, with a
    warning; training continues.

    \b
    Examples:
      distrain train orders.csv --target bought
      distrain train 'orders/*.parquet' --target price --time sold_at --model mlp
      distrain train orders.csv --target bought --bad-lines skip --run-dir runs/a --overwrite
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
    from distrain.cli.job_progress import JobProgress, submit_detached
    from distrain.jobs.spec.load import load_spec, parse_spec, sets_section
    from distrain.launch.resuming import find_run, lead_or_follow, resume_or_begin
    from distrain.launch.run import RunRequest, train
    from distrain.runs.run_file import check_new_run

    is_table = bool(of_table["target"] or of_table["features"])
    _check_options(context, is_table)
    if not is_table:
        _refuse_table_options(context, sources, of_table)
    if_interrupted("the job was not started")
    table = None
    if is_table:
        if run_dir is not None and not sets_section(overrides, "resources"):
            # Before the rows are prepared, which takes time. A launcher's ranks (`resources.backend
            # env`) resume the run that they find.
            check_new_run(RunPaths(run_dir), overwrite=overwrite)
        place = (Path("runs") / "new" if run_dir is None else run_dir).parent / PREPARED
        table = _table_job(sources, place, scheduler, overrides, of_table)

    def make_job(*words: str) -> "tuple[str, JobSpec, Resumption | None]":
        fields = (*overrides, *words)
        if resumed_run is not None:
            return find_run(resumed_run, fields, without_checkpoint=without_checkpoint)
        if table is None:
            spec = load_spec(sources[0], fields)
        else:
            spec = parse_spec(table.document, fields)
        return new_job_id(spec.name), spec, None

    job_id, spec, resumed = make_job()
    root = resumed_run or run_dir or Path("runs") / job_id
    gang = None
    if spec.resources.backend == "env" and not detach:
        if overwrite:
            raise click.UsageError(
                "--overwrite: with `backend: env`, a restarted command resumes the run in "
                "--run-dir. Remove that folder, or choose another."
            )
        gang = lead_or_follow(spec, resumed_run or run_dir)
        job_id, spec, resumed = resume_or_begin(root, gang, make_job)
    ended = f"the job has ended; to complete {root}: {command_line('train', '--resume', root)}"
    progress = JobProgress(progress_console(), _left_behind(spec, root), ended)
    progress.target = table.target if table else LABEL
    for text in resumed.damaged if resumed else ():
        progress.say(f"warning: {text}")
    run = RunRequest(
        spec,
        root,
        job_id,
        scheduler,
        dashboard_address,
        resumed,
        sinks,
        overwrite=overwrite,
        features=table.features if table else "",
        gang=gang,
    )
    if detach:
        _check_detachable(run)
    if dry_run:
        _print_checked(run)
        return
    if detach:
        submit_detached(run)
        return
    print_outcome(root, lambda on_summary: train(run, progress, on_summary))


_OF_COLUMNS = ("target", "task", "valid", "test", "time", "weight")
_NOT_RESUMED = (*_OF_COLUMNS, "model", "features", "bad_lines", "max_bad", "run_dir", "overwrite")
"""Options that `--resume` would ignore, because the run has them already."""


def _check_options(context: click.Context, is_table: bool) -> None:
    """Raise an error if options contradict each other, or need another option."""
    values = context.params
    sources, is_resumed = values["sources"], values["resumed_run"] is not None
    unused = given_options(context, _NOT_RESUMED)
    if is_resumed and not sources and unused:
        raise click.UsageError(
            f"--resume uses the run's own folder, spec and rows: leave {', '.join(unused)} out."
        )
    if bool(sources) == is_resumed or (len(sources) > 1 and not is_table):
        raise click.UsageError(
            "Give one of a SPEC.yaml, --resume RUN, and a TABLE with --target COLUMN."
        )
    if values["features"] is not None and (unused := given_options(context, _OF_COLUMNS)):
        raise click.UsageError(
            "--features says which columns are target, weight and validation: "
            f"leave {', '.join(unused)} out."
        )
    if values["overwrite"] and values["run_dir"] is None:
        raise click.UsageError("--overwrite is for --run-dir.")
    if values["without_checkpoint"] and not is_resumed:
        raise click.UsageError("--without-checkpoint is for --resume.")
    if values["detach"] and values["scheduler"] is None:
        raise click.UsageError(
            "--detach needs a cluster that outlives this command: --scheduler ADDRESS, "
            f"or {SCHEDULER_VARIABLE}."
        )
    if values["detach"] and values["sinks"]:
        raise click.UsageError("--detach: sinks need a command that follows the job.")


def _refuse_table_options(
    context: click.Context, sources: tuple[str, ...], of_table: dict[str, Any]
) -> None:
    """Raise an error if a table has no target, or if options are given that need a table."""
    from distrain.jobs.spec.load import is_named_as_table

    if any(map(is_named_as_table, sources)):
        from distrain.launch.tables import refuse_without_target

        refuse_without_target(sources)
    if given := given_options(context, of_table):
        raise click.UsageError(f"{', '.join(given)}: only for a TABLE with --target COLUMN.")


def _table_job(
    rows: tuple[str, ...],
    place: Path,
    scheduler: str | None,
    overrides: tuple[str, ...],
    options: dict[str, Any],
) -> "TableJob":
    """Prepare a table and fit a job to it; print the decisions and warnings.

    Raises a `UsageError` if `--features` is given with an option that says what a column is.
    """
    if options["features"] is None:
        print_remark("inferring the columns")  # before imports, which take a second
    from distrain.launch.tables import TableRequest, job_of_table, make_user_choices

    features, valid = options["features"], _valid_of(options["valid"])
    target = options["target"] or None  # with a features document, none is given
    columns = (target, options["task"], valid, options["time"], options["weight"])
    choices, valid_rows, test_rows = make_user_choices(*columns, _valid_of(options["test"]))
    model = options["model"]
    max_bad = options["max_bad"] if options["bad_lines"] == "skip" else None
    request = TableRequest(
        rows,
        place,
        choices,
        valid_rows,
        test_rows,
        features,
        model,
        scheduler,
        max_bad=max_bad,
        overrides=overrides,
    )
    with WorkProgress(progress_console()) as progress:
        table = job_of_table(request, print_warning, progress.show_prep)
    for decision in table.decisions:
        print_remark(decision)
    for warning in table.warnings:
        print_warning(f"warning: {warning}")
    return table


def _valid_of(words: tuple[str, ...]) -> Any:
    """Convert the values of `--valid` or `--test` to that argument of `distrain.fit`.

    No value gives `None`, `none` gives False, a number or a mapping gives itself, `10%` gives 0.1,
    and anything else the names of files.
    """
    from distrain.jobs.spec.load import parse_yaml

    if len(words) != 1:
        return words or None
    if words[0].endswith("%"):
        with suppress(ValueError):
            return float(words[0].removesuffix("%")) / 100
    with suppress(ValueError):
        value = parse_yaml(words[0])
        if isinstance(value, int | float | dict):
            return value
    return False if words[0] == "none" else words


def _left_behind(spec: "JobSpec", root: Path) -> str:
    """Return the end of an interrupted command's message: what happens to the job now.

    It also has the command that resumes or lists the job. `root` is the run folder.
    """
    resume = command_line("train", "--resume", root)
    if spec.resources.backend != "dask":  # it trained in this process
        return f"the job ended with this command; resume it: {resume}"
    return "the job may still run; `distrain jobs` lists a scheduler's jobs"


def _check_detachable(run: "RunRequest") -> None:
    if (backend := run.spec.resources.backend) != "dask":
        raise click.UsageError(f"--detach: a job with `backend: {backend}` runs in this process.")


def _print_checked(run: "RunRequest") -> None:
    """Check a job for `--dry-run`; print its resolved spec, the number of rows, and notes.

    With a scheduler and the backend `dask`, also connects to the scheduler, without a job.
    """
    from distrain.jobs.spec.load import dump_yaml
    from distrain.workers.open_cluster import connect

    checked = run.check()
    if run.scheduler is not None and run.spec.resources.backend == "dask":
        with connect(run.scheduler):
            pass  # it answers
    inputs = checked.inputs
    if run.resumed is not None:
        print_warning(f"# resumes from step {run.resumed.step or 0}")
    values = run.spec.model_dump(mode="json")
    print_json(values)
    print_result(dump_yaml(values).rstrip("\n"))
    print_warning(f"# {inputs.train.num_rows:,} training rows")
    if inputs.valid:
        print_warning(f"# {inputs.valid.num_rows:,} validation rows")
    for note in checked.notes:
        print_warning(f"# note: {note}")
