"""`distrain logs`: what the ranks of a run printed."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distrain.report.logs import RankLog
    from distrain.run_paths import RunPaths


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--rank", type=click.IntRange(min=0), help="Only this rank. Default: all.")
@click.option(
    "--attempt",
    type=click.IntRange(min=1),
    help="Only this attempt. Default: the last one; with --first-error, all.",
)
@click.option("--first-error", is_flag=True, help="Only the error that came first, and its place.")
def command(run: Path, rank: int | None, attempt: int | None, first_error: bool) -> None:
    """Print what the ranks of a run printed, also while they run.

    Each rank of each attempt has a log of its own in RUN/logs. Of one that printed very much, the
    first and last 8 MiB are kept.

    \b
    Examples:
      distrain logs runs/today
      distrain logs runs/today --rank 0 --attempt 1
      distrain logs runs/today --first-error
    """
    from distrain.report.logs import find_logs
    from distrain.run_paths import RunPaths

    paths = RunPaths(run)
    logs = find_logs(paths, attempt, rank)
    if first_error:
        _print_first_error(logs, paths)
        return
    if attempt is None:
        logs = [log for log in logs if log.attempt == logs[-1].attempt]
    for log in logs:
        if len(logs) > 1:
            click.secho(f"==> attempt {log.attempt}, rank {log.rank} <==", bold=True)
        click.echo(log.text().rstrip("\n"))


def _print_first_error(logs: "Sequence[RankLog]", paths: "RunPaths") -> None:
    from distrain.report import read_summary
    from distrain.report.logs import first_error

    error = first_error(logs)
    if error is None:
        click.echo("No rank has logged an error.")
    else:
        where = f"attempt {error.log.attempt}, rank {error.log.rank}"
        click.secho(f"==> {where}: {error.log.path}, line {error.line} <==", bold=True)
        click.echo(error.text)
    if error is None or error.of_peers:
        # A rank that was killed has no last words: then the coordinator's account is the first.
        summary = read_summary(paths) or {}
        ends = [*summary.get("restarts", ()), summary]
        told = next((end for end in ends if end.get("reason")), None)
        if told:
            click.echo(f"The coordinator's account: {told['reason']}: {told['message']}")
