"""`distrain audit`: proves that a run trained every row once."""

from pathlib import Path

import click

from distrain.cli.options import PATH, json_option
from distrain.cli.output import print_json, print_result
from distrain.jobs.run_paths import RunPaths, check_run_dir


@click.command()
@click.argument("run", metavar="RUN", type=PATH)
@json_option("Print one JSON object.")
def command(run: Path) -> None:
    """Prove that a run trained each row of each epoch exactly once.

    RUN is the run folder of a run with `train.audit`. All training data is read again, and compared
    with the hashes that the ranks of all attempts wrote. The exit code is 0 if they agree, 1 if
    not. If the run ended within an epoch, each row of that epoch must be trained at most once.

    \b
    Examples:
      distrain train job.yaml --set train.audit=true
      distrain audit runs/dlrm-20260301-123000-ab12
    """
    from distrain.runs.run_file import read_run_and_spec

    check_run_dir(RunPaths(run))
    read_run_and_spec(run)

    from distrain.train.audit.audit import audit_run

    audit = audit_run(run)
    print_json(audit.to_json())
    print_result(
        f"{audit.table_rows:,} rows in the table; {audit.steps:,} of {audit.num_steps:,} steps "
        f"in {audit.attempts} attempt{'s' if audit.attempts > 1 else ''}"
    )
    for epoch in audit.epochs:
        times = "once" if epoch.whole else "at most once (it is incomplete)"
        verdict = f"each {times}" if not epoch.problems else "NOT as expected"
        which = f"epoch {epoch.epoch}" + (f", window {epoch.window}" if epoch.window else "")
        print_result(f"{which}: {epoch.rows:,} rows trained, {verdict}")
        for problem in epoch.problems:
            print_result(f"  {problem}")
    if not audit.proved:
        click.get_current_context().exit(1)
