"""`distrain report` and `compare`: write an HTML page about one run, and about several."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from distrain.cli.jobs.choose_server import READ_S, server_of_run, server_option
from distrain.cli.jobs.service_connection import at, service_at
from distrain.cli.options import EXISTING_FILE, PATH, json_option
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
@click.option(
    "--evaluation",
    metavar="FILE.json",
    type=EXISTING_FILE,
    help="Include this output of `distrain evaluate --json`.",
)
@server_option
@json_option("Print the paths of the written files as JSON.")
def command(
    run: str,
    out: Path | None,
    with_curves: bool,
    evaluation: Path | None,
    server: str | None,
) -> None:
    """Write one self-contained HTML file about a run, also a failed or running one.

    It shows the outcome, curves over rows and wall time, the time by phase and rank, checkpoints
    and restarts. Tables list the data, hardware, versions and the spec.

    If RUN_OR_JOB is not a run folder on this machine, it is a job of a service: an id, or its
    beginning. Its records are downloaded and drawn here. If it is a URL, such as that of a job's
    run folder in a bucket, the report is also uploaded there.

    \b
    Examples:
      distrain report runs/today
      distrain report runs/today --out today.html --curves
      distrain report runs/today --evaluation evaluation.json
      distrain report dlrm-20260301-123000-ab12
    """
    if is_remote(run):
        written = _drawn_in_store(run, out, evaluation, with_curves=with_curves)
    elif address := server_of_run(Path(run), server):
        if with_curves:
            raise click.UsageError("--curves is for a run folder.")
        written = [str(_drawn_of_service(address, run, out, evaluation))]
    else:
        from distrain.runs.report.run_page import write_curves, write_report

        root = Path(run)
        curves = write_curves(root) if with_curves else []  # before the report
        page = out or RunPaths(root).report
        write_report(root, page, evaluation)
        written = [str(path) for path in (page, *curves)]
    print_answer(files=written)
    for path in written:
        print_result(path)


def _drawn_in_store(
    url: str, out: Path | None, evaluation: Path | None, *, with_curves: bool
) -> list[str]:
    """Draw a run in a bucket on this machine, and upload the files to it; return their places."""
    from distrain.runs.report.run_page import write_curves, write_report
    from distrain.runs.stored.folder import fetch_run, put_pictures

    with TemporaryDirectory(prefix="distrain-report-") as folder:
        root = fetch_run(url, Path(folder))
        page = out or RunPaths(root).report
        write_report(root, page, evaluation)
        drawn = [page, *(write_curves(root) if with_curves else ())]
        put_pictures(root, url)
        return [
            f"{url.rstrip('/')}/{path.name}" if path.is_relative_to(root) else str(path)
            for path in drawn
        ]


def _drawn_of_service(server: str, word: str, out: Path | None, evaluation: Path | None) -> Path:
    """Download the records of a service's job, draw them here, and return the page's path.

    Raises `InputError` if the job has not begun.
    """
    from distrain.client.errors import NotFound
    from distrain.runs.report.run_page import write_report

    with service_at(server, READ_S) as client, TemporaryDirectory() as folder:
        job, paths = client.find(word), RunPaths(Path(folder))
        names = [path.name for path in (paths.run, paths.spec, paths.summary)]
        with suppress(NotFound):  # no attempt has begun
            names += [file.name for file in client.artifacts(job.id, below=paths.records.name)]
        for name in names:
            with suppress(NotFound):
                client.download(job.id, name, _made(paths.root / name))
        if not paths.run.exists():
            raise InputError(
                f"job {job.id} has not started: there is nothing to draw",
                where={"server": client.address, "state": job.state},
                hint=f"distrain status {job.id}{at(server)}",
            )
        page = out or Path(f"{job.id}.html")
        write_report(paths.root, page, evaluation)
    return page


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@click.command("compare")
@click.argument("runs", metavar="RUN RUN ...", nargs=-1, required=True, type=PATH)
@click.option(
    "--out",
    metavar="FILE.html",
    type=PATH,
    help="Also write the comparison with its curves to one self-contained file.",
)
@json_option("Print the tables as JSON.")
def compare(runs: tuple[Path, ...], out: Path | None) -> None:
    """Compare runs: their metrics, and the fields of the spec in which they differ.

    Each RUN is a run folder on this machine; `distrain status JOB` prints the run folder of a
    service's job. Running runs are compared by their records so far.

    \b
    Examples:
      distrain compare runs/monday runs/tuesday
      distrain compare runs/monday runs/tuesday runs/today --out week.html
    """
    from distrain.runs.report.comparison import compare as compared, write_comparison
    from distrain.runs.run_data import read_run_data

    if len(runs) < 2:
        raise click.UsageError("Give two runs or more.")
    data = [read_run_data(run) for run in runs]
    comparison = compared(data)
    console = result_console()
    _print(console, "outcome", comparison.names, comparison.outcomes)
    if comparison.settings:
        _print(console, "differences in the spec", comparison.names, comparison.settings)
    else:
        console.print("the specs are equal")
    if comparison.environment:
        _print(console, "differences in the environment", comparison.names, comparison.environment)
    if out is not None:
        write_comparison(data, out)
        print_result(out)
    # Each table as an object of rows, with a text for each run.
    names = ("outcomes", "settings", "environment")
    tables = {name: {row[0]: row[1:] for row in getattr(comparison, name)} for name in names}
    print_answer(
        runs=[run.name for run in data],
        names=comparison.names,
        **tables,
        file=None if out is None else str(out),
    )


def _print(
    console: "Console", title: str, names: Sequence[str], rows: Iterable[Sequence[str]]
) -> None:
    columns = [("", {"style": "bold", "overflow": "fold"})]
    columns += [(name, {"overflow": "fold"}) for name in names]
    table = table_of(columns, rows, title=title, title_justify="left")
    console.print(table, highlight=False)
