"""`distrain doctor`: checks this machine and a cluster."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from distrain.cli.options import PATH, connection_options, json_option
from distrain.cli.output import (
    print_answer,
    print_json,
    print_remark,
    print_result,
    result_console,
    table_of,
)
from distrain.diagnostics.check import CheckVerdict


@click.command()
@connection_options("Check every process of this Dask cluster instead of this machine.")
@click.option(
    "--run-dir",
    type=PATH,
    default=Path("runs"),
    help="For this machine: the folder of future runs.",
)
@click.option(
    "--run-root",
    metavar="FOLDER",
    default="",
    show_default=False,
    help="For a cluster: the folder of runs, which all workers should be able to access.",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    help="For a cluster: the device of jobs; cpu ignores GPUs, cuda requires them.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=1.0),
    default=20.0,
    help="For a cluster: the maximum wait for answers in each step, in seconds.",
)
@json_option("Print a JSON list of checks; for a cluster one JSON document.")
def command(scheduler: str | None, run_dir: Path, **examined: Any) -> None:
    """Check this machine or a cluster, and say how to fix each problem.

    Without --scheduler, checks this machine: versions, devices, memory and write access. With
    --scheduler, checks the cluster's scheduler and all of its workers: versions, connections
    between hosts, the folder of runs, GPUs and memory.

    The exit code is 1 if a check fails or the cluster has a mistake; warnings do not change it.

    \b
    Examples:
      distrain doctor
      distrain doctor --run-dir /shared/runs
      distrain doctor --scheduler tcp://10.0.0.5:8786 --run-root /shared/runs
    """
    failed = _examine(scheduler, **examined) if scheduler else _check_here(run_dir)
    if failed:
        raise click.exceptions.Exit(1)


def _check_here(run_dir: Path) -> bool:
    import distributed  # noqa: F401  # raises if Dask's settings cannot be read

    from distrain.diagnostics.doctor.machine import check_machine, check_write_access

    checks = [*check_machine(), check_write_access(run_dir)]
    print_json([asdict(check) for check in checks])
    marks = {CheckVerdict.OK: "ok  ", CheckVerdict.NOTE: "note", CheckVerdict.FAIL: "FAIL"}
    for check in checks:
        print_result(f"{marks[check.verdict]}  {check.name:22} {check.detail}")
        if check.mend:
            print_result(f"{'':28} -> {check.mend}")
    return any(check.verdict is CheckVerdict.FAIL for check in checks)


def _examine(scheduler: str, **options: Any) -> bool:
    from distrain.diagnostics.doctor.cluster import examine_cluster
    from distrain.diagnostics.doctor.report import facts_table, report_json, report_lines
    from distrain.workers.open_cluster import connect

    print_remark(f"examining {scheduler}")
    with connect(scheduler) as client:
        report = examine_cluster(client, **options)
    print_answer(**report_json(report))
    for number, line in enumerate(report_lines(report)):
        print_result(line, bold=number == 0)
    headings, *rows = facts_table(report.seen)
    result_console().print(
        table_of([(title, {}) for title in headings], rows, box=None, pad_edge=False)
    )
    return report.mistakes > 0
