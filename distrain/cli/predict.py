"""`distrain predict`: a saved model's scores, parquet to parquet."""

from pathlib import Path

import click

from distrain.cli.params import checkpoint_option, json_option, scheduler_options
from distrain.cli.tls import tls_options


@click.command()
@click.argument("model", metavar="RUN_OR_MODEL", type=click.Path(path_type=Path))
@click.argument("data", nargs=-1, required=True)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder to write.")
@click.option("--keep", multiple=True, metavar="COLUMN", help="Copy this column; may be repeated.")
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    default=65536,
    show_default=True,
    help="Rows scored at once.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Workers of a local cluster.",
)
@scheduler_options("Use this Dask cluster, not a local one.")
@tls_options
@click.option("--overwrite", is_flag=True, help="Replace an existing output folder.")
@checkpoint_option
@json_option("Print what was written as JSON.")
def command(
    model: Path,
    data: tuple[str, ...],
    out: Path,
    keep: tuple[str, ...],
    batch_size: int,
    workers: int,
    scheduler: str | None,
    overwrite: bool,
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
    """
    from distrain.cli.models import check_data, find_model
    from distrain.storage import check_free

    folder = find_model(model, checkpoint)
    check_data(data)
    check_free(out, overwrite)

    from distrain.cli.interrupts import if_interrupted
    from distrain.cli.output import answer, progress_console, tell
    from distrain.cli.progress import WorkProgress
    from distrain.cluster import open_cluster
    from distrain.scoring import PredictRequest, check_request, predict

    request = PredictRequest(folder, data, out, keep, batch_size, overwrite)
    check_request(request)  # starting workers takes seconds; a mistyped path should not
    if_interrupted(f"nothing was written to {out}")
    cluster = open_cluster(scheduler=scheduler, num_workers=workers)
    with cluster as client, WorkProgress(progress_console()) as progress:
        result = predict(
            request,
            client,
            lambda done, total, rows: progress.show("scoring", done, total, rows, "files"),
        )
    if as_json:
        answer(folder=str(out), rows=result.rows, files=result.files)
    tell(f"{result.rows:,} rows in {result.files} files: {out}")
