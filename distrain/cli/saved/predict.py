"""`distrain predict`: a saved model's scores, parquet to parquet."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from distrain.cli.options import PLACE, json_option, keep_option, workers_options
from distrain.cli.saved.models import check_data, checkpoint_option, find_model, scoring_options

if TYPE_CHECKING:
    from distrain.scoring import PredictResult

_BATCH_ROWS = 65536
"""Also the rows of a row group of the scores."""


@click.command()
@scoring_options(_BATCH_ROWS)
@click.option(
    "--out",
    required=True,
    type=PLACE,
    help="Folder to write, or a prefix of an object store (s3://BUCKET/PATH).",
)
@keep_option("Copy this column; may be repeated.")
@workers_options
@click.option("--overwrite", is_flag=True, help="Replace an existing output folder.")
@click.option(
    "--resume",
    is_flag=True,
    help="Keep what is scored, in .OUT.scored beside OUT, if the command ends early, and use what "
    "such a command left, if model, data and options are the same. If that has finished OUT, there "
    "is nothing to do.",
)
@checkpoint_option
@json_option("Print what was written as JSON.")
def command(
    model: Path,
    data: tuple[str, ...],
    out: Path | str,
    keep: tuple[str, ...],
    batch_size: int,
    workers: int,
    scheduler: str | None,
    overwrite: bool,
    resume: bool,
    checkpoint: str | None,
    as_json: bool,
) -> None:
    """Write one file of scores per file of DATA, on a Dask cluster.

    RUN_OR_MODEL is a run directory, its model folder, or the folder of one checkpoint.

    Each output row has the kept columns and `probability`, in the order of the input rows. The
    folder appears when all files are done. All workers must see model, data and output.

    \b
    Examples:
      distrain predict runs/NAME criteo/valid --out scores
      distrain predict runs/NAME 'new/*.parquet' --out scores --keep user --keep label
      distrain predict runs/NAME s3://clicks/day_24 --out s3://clicks/day_24-scores
    """
    from distrain.storage import check_output

    folder = find_model(model, checkpoint)
    check_data(data)
    if not resume:
        check_output(out, overwrite)

    from distrain.cli.interrupts import if_interrupted
    from distrain.cli.output import progress_console
    from distrain.cli.progress_bars import WorkProgress
    from distrain.cluster import ClusterRequest, device_of_workers, open_cluster
    from distrain.scoring import PredictRequest, check_request, finished_scores, predict

    # On a scheduler's workers each task takes the GPU that its worker sees.
    device = device_of_workers(workers) if scheduler is None else "auto"
    request = PredictRequest(folder, data, out, keep, batch_size, overwrite, device, resume)
    finished = finished_scores(request)
    if finished is not None:
        _print(out, finished, as_json, f"nothing is left to do, {out} holds these scores already")
        return
    check_request(request)  # starting workers takes seconds; a mistyped path should not
    kept = "; what is scored stays for --resume" if resume else ""
    if_interrupted(f"nothing was written to {out}{kept}")
    cluster = open_cluster(ClusterRequest(scheduler, workers, device=device))
    with cluster as client, WorkProgress(progress_console()) as progress:
        result = predict(
            request,
            client,
            lambda done, total, rows: progress.show("scoring", done, total, rows, "tasks"),
        )
    before = f", {result.resumed_rows:,} of them scored before" if result.resumed_rows else ""
    _print(out, result, as_json, f"{result.rows:,} rows in {result.files} files{before}: {out}")


def _print(out: Path | str, result: "PredictResult", as_json: bool, told: str) -> None:
    from distrain.cli.output import print_answer, print_result

    if as_json:
        rows = {"rows": result.rows, "files": result.files, "resumed_rows": result.resumed_rows}
        print_answer(folder=str(out), **rows)
    print_result(told)
