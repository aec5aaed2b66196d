"""`distrain report`: a run on one page."""

from pathlib import Path

import click

from distrain.cli.params import json_option


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--out",
    metavar="FILE.html",
    type=click.Path(path_type=Path),
    help="Where to write. Default: RUN/report.html. What is there is replaced.",
)
@click.option("--png", "with_pngs", is_flag=True, help="Write each figure beside it as PNG, too.")
@json_option("Print the paths of what was written as JSON.")
def command(run: Path, out: Path | None, with_pngs: bool, as_json: bool) -> None:
    """Write one HTML file that shows a run and needs no network: also one that failed or runs on.

    It has the outcome, curves of loss, AUC and rows/s against rows and wall time, where the time
    went by phase and rank, checkpoints and restarts, the data, hardware and versions, and the spec.

    \b
    Examples:
      distrain report runs/today
      distrain report runs/today --out today.html --png
    """
    from distrain.cli.output import answer, tell
    from distrain.report.run_page import write_report
    from distrain.run_paths import RunPaths

    written = write_report(run, out or RunPaths(run).report, with_pngs=with_pngs)
    if as_json:
        answer(files=[str(path) for path in written])
    for path in written:
        tell(path)
