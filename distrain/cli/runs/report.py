"""`distrain report`: one HTML page about a run."""

from pathlib import Path

import click

from distrain.cli.options import PATH, json_option


@click.command()
@click.argument("run", metavar="RUN", type=PATH)
@click.option(
    "--out",
    metavar="FILE.html",
    type=PATH,
    help="Where to write. Default: RUN/report.html. What is there is replaced.",
)
@click.option("--png", "with_pngs", is_flag=True, help="Write each figure beside it as PNG, too.")
@click.option(
    "--curves", "with_curves", is_flag=True, help="Draw RUN/curves.png, too, as training does."
)
@json_option("Print the paths of what was written as JSON.")
def command(run: Path, out: Path | None, with_pngs: bool, with_curves: bool, as_json: bool) -> None:
    """Write one HTML file that shows a run and needs no network: also one that failed or runs on.

    It shows the outcome, curves of loss, AUC and rows/s over rows and wall time, the time by phase
    and rank, checkpoints and restarts, the data, hardware and versions, and the spec.

    \b
    Examples:
      distrain report runs/today
      distrain report runs/today --out today.html --png
    """
    from distrain.cli.output import print_answer, print_result
    from distrain.report import write_curves, write_report
    from distrain.run_paths import RunPaths

    written = write_report(run, out or RunPaths(run).report, with_pngs=with_pngs)
    if with_curves:
        written += write_curves(run)
    if as_json:
        print_answer(files=[str(path) for path in written])
    for path in written:
        print_result(path)
