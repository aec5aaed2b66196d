"""`distrain doctor`: can distrain work here?"""

from pathlib import Path

import click

from distrain.cli.params import json_option, scheduler_options
from distrain.cli.tls import tls_options


@click.command()
@scheduler_options("Look at this Dask cluster, too.")
@tls_options
@click.option(
    "--run-dir",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Where runs are to be written.",
)
@json_option("Print one JSON list.")
def command(scheduler: str | None, run_dir: Path, as_json: bool) -> None:
    """Check versions, devices, cluster and write access, and say how to mend what is wrong.

    The exit code is 1 if something fails.

    \b
    Examples:
      distrain doctor
      distrain doctor --scheduler tcp://10.0.0.5:8786 --run-dir /shared/runs
    """
    from dataclasses import asdict

    from distrain.cli.output import document, tell
    from distrain.doctor import Verdict, check_machine, check_scheduler, check_write_access

    checks = [*check_machine(), check_write_access(run_dir)]
    if scheduler:
        checks += check_scheduler(scheduler)
    if as_json:
        document([asdict(check) for check in checks])
    else:
        marks = {Verdict.OK: "ok  ", Verdict.NOTE: "note", Verdict.FAIL: "FAIL"}
        for check in checks:
            tell(f"{marks[check.verdict]}  {check.name:22} {check.detail}")
            if check.mend:
                tell(f"{'':28} -> {check.mend}")
    if any(check.verdict is Verdict.FAIL for check in checks):
        raise click.exceptions.Exit(1)
