"""`distrain doctor`: checks of this machine and of a cluster."""

from pathlib import Path

import click

from distrain.cli.options import PATH, connection_options, json_option


@click.command()
@connection_options("Check this Dask cluster, too.")
@click.option("--run-dir", type=PATH, default=Path("runs"), help="Where runs are to be written.")
@json_option("Print one JSON list.")
def command(scheduler: str | None, run_dir: Path, as_json: bool) -> None:
    """Check versions, devices, cluster and write access, and say how to mend what is wrong.

    The exit code is 1 if a check fails.

    \b
    Examples:
      distrain doctor
      distrain doctor --scheduler tcp://10.0.0.5:8786 --run-dir /shared/runs
    """
    from dataclasses import asdict

    from distrain.cli.output import print_json, print_result
    from distrain.doctor import Verdict, check_machine, check_scheduler, check_write_access

    checks = [*check_machine(), check_write_access(run_dir)]
    if scheduler:
        checks += check_scheduler(scheduler)
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        marks = {Verdict.OK: "ok  ", Verdict.NOTE: "note", Verdict.FAIL: "FAIL"}
        for check in checks:
            print_result(f"{marks[check.verdict]}  {check.name:22} {check.detail}")
            if check.mend:
                print_result(f"{'':28} -> {check.mend}")
    if any(check.verdict is Verdict.FAIL for check in checks):
        raise click.exceptions.Exit(1)
