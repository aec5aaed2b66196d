"""`distrain report` and `compare`: write an HTML page about a run, and compare several."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from distrain.cli.jobs.choose_server import READ_S, server_of_run, server_option
from distrain.cli.jobs.service_connection import server_argument, service_at
from distrain.cli.options import PATH, json_option
from distrain.cli.output import print_answer, print_result, result_console, table_of
from distrain.errors import InputError
from distrain.jobs.run_paths import RunPaths
from distrain.storage.urls import is_remote

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.argument("run", metavar="RUN_OR_JOB")
@click.option(
    "--out",
    metavar="FILE.html",
    type=PATH,
    help="The file to write. Default: RUN/report.html; for a service's job, JOB.html. An existing "
    "file is replaced.",
)
@click.option(
    "--curves", "with_curves", is_flag=True, help="Also draw RUN/curves.png, as training does."
)
@server_option
@json_option("Print the paths of the written files as JSON.")
def command(
    run: str,
    out: Path | None,
    with_curves: bool,
    server: str | None,
) -> None:
    """Write a self-contained HTML page about a run, even if it failed or still runs.

    It shows the outcome, curves over rows and training time, the time by phase and rank,
    checkpoints and restarts. Tables list the data, hardware, versions and the spec.

    RUN_OR_JOB is a run folder on this machine, the URL of a run folder in an object store, or a job
    of a service: its id, or the beginning or end of its id. The records of a job or of a run at a
    URL are downloaded, and drawn here. For a URL, the report is then uploaded to the run folder,
    unless --out names a local file.

    \b
    Examples:
      distrain report runs/today
      distrain report runs/today --out today.html --curves
      distrain report dlrm-20260301-123000-ab12
    """
    from distrain.runs.report.run_page import write_curves, write_report
    from distrain.runs.stored.folder import fetch_run, upload_images

    with TemporaryDirectory(prefix="distrain-report-") as folder:
        root, page = Path(run), out
        if is_remote(run):
            root = fetch_run(run, Path(folder))
        elif address := server_of_run(root, server):
            if with_curves:
                raise click.UsageError("--curves is for a run folder.")
            root = Path(folder)
            job_id = _fetch_job(address, run, RunPaths(root))
            page = out or Path(f"{job_id}.html")
        page = page or RunPaths(root).report
        curves = write_curves(root) if with_curves else []  # before the report
        write_report(root, page)
        written = [str(path) for path in (page, *curves)]
        if is_remote(run):
            upload_images(root, run)
            written = [path.replace(folder, run.rstrip("/")) for path in written]
    print_answer(files=written)
    for path in written:
        print_result(path)


def _fetch_job(server: str, word: str, paths: RunPaths) -> str:
    """Download `run.json`, spec, summary and records of a service's job; return the job's id.

    `word` is the job's id, or its beginning or end. Raises `InputError` if the job has not started.
    """
    from distrain.client.errors import NotFound

    with service_at(server, READ_S) as client:
        job = client.find(word)
        names = [path.name for path in (paths.run, paths.spec, paths.summary)]
        with suppress(NotFound):  # no attempt has begun
            names += [file.name for file in client.artifacts(job.id, below=paths.records.name)]
        paths.records.mkdir()
        for name in names:
            with suppress(NotFound):
                client.download(job.id, name, paths.root / name)
        if not paths.run.exists():
            raise InputError(
                f"job {job.id} has not started: there is nothing to draw",
                where={"server": client.address, "state": job.state},
                hint=f"distrain status {job.id}{server_argument(server)}",
            )
    return job.id


@click.command("compare")
@click.argument("runs", metavar="RUN RUN ...", nargs=-1, required=True, type=PATH)
@json_option("Print the tables as JSON.")
def compare(runs: tuple[Path, ...]) -> None:
    """Compare runs: their metrics, and the fields of the spec in which they differ.

    Each RUN is a run folder on this machine; `distrain status JOB` prints the run folder of a
    service's job. Running runs are compared by their records so far.

    \b
    Examples:
      distrain compare runs/monday runs/tuesday
    """
    from distrain.runs.report.comparison import compare as compared
    from distrain.runs.run_data import read_run_to_show

    if len(runs) < 2:
        raise click.UsageError("Give two runs or more.")
    data = [read_run_to_show(run) for run in runs]
    comparison = compared(data)
    console = result_console()
    outcomes = [
        (
            name,
            *(
                f"{t} (best)" if n in comparison.best.get(name, ()) else t
                for n, t in enumerate(row)
            ),
        )
        for name, *row in comparison.outcomes
    ]
    _print(console, "outcome", comparison.names, outcomes)
    if comparison.settings:
        _print(console, "differences in the spec", comparison.names, comparison.settings)
    else:
        console.print("the specs are equal")
    if comparison.environment:
        _print(console, "differences in the environment", comparison.names, comparison.environment)
    # Each table as an object of rows, with a text for each run.
    names = ("outcomes", "settings", "environment")
    tables = {name: {row[0]: row[1:] for row in getattr(comparison, name)} for name in names}
    print_answer(runs=[run.name for run in data], names=comparison.names, **tables)


def _print(
    console: "Console", title: str, names: Sequence[str], rows: Iterable[Sequence[str]]
) -> None:
    columns: list[tuple[str, dict[str, Any]]] = [("", {"style": "bold", "no_wrap": True})]
    columns += [(name, {"overflow": "fold"}) for name in names]
    table = table_of(columns, rows, title=title, title_justify="left")
    console.print(table, highlight=False)
