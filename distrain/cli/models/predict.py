"""`distrain predict`: writes a saved model's scores of prepared or raw rows to parquet."""

from contextlib import nullcontext
from pathlib import Path

import click

from distrain.cli.data.prepared import left_out_of, warn_of_scored
from distrain.cli.interrupts import if_interrupted
from distrain.cli.models.models import (
    check_data,
    checkpoint_option,
    find_model,
    raw_options,
    scoring_options,
)
from distrain.cli.options import PLACE, given_options, json_option, keep_option, workers_options
from distrain.cli.output import (
    print_answer,
    print_facts,
    print_remark,
    print_result,
    progress_console,
)
from distrain.cli.progress_bars import WorkProgress
from distrain.formatting import counted

_SMALL_BYTES = 64 << 20
"""Below this total size, files are scored in this process: faster than starting a worker."""


@click.command()
@scoring_options
@click.option(
    "--out",
    required=True,
    type=PLACE,
    help="Folder to write, or a prefix of an object store (s3://BUCKET/PATH).",
)
@keep_option("Copy this column of DATA; may be repeated.")
@raw_options
@workers_options
@click.option("--overwrite", is_flag=True, help="Replace OUT if it exists.")
@checkpoint_option
@json_option("Print the result as JSON.")
def command(
    model: Path,
    data: tuple[str, ...],
    out: Path | str,
    keep: tuple[str, ...],
    is_raw: bool | None,
    bad_lines: str,
    max_bad: float,
    batch_size: int | None,
    workers: int,
    scheduler: str | None,
    overwrite: bool,
    checkpoint: str | None,
) -> None:
    """Write one file of scores per file of DATA, on a Dask cluster.

    RUN_OR_MODEL is a run folder, its model folder, or the folder of one checkpoint.

    Each output row has the columns of --keep, `logit` and `probability`, in the order of the input
    rows; for targets other than a single binary one see docs/models/tasks.md. The folder appears
    when all files are done. All workers must be able to access model, data and output. Without
    --workers and --scheduler, files of less than 64 MiB in total are scored on the CPU in this
    process, unless dask-cuda is installed and there is a GPU for each worker.

    DATA are prepared parquet, or raw rows as for `distrain prep`, labelled or not. Raw rows are
    first prepared by the model's own workflow. Their scores have the columns `file` and
    `row_number`, which counts from 0 in each file and includes bad rows.

    \b
    Examples:
      distrain predict runs/NAME criteo/valid --out scores
      distrain predict runs/NAME new-orders.csv --out scores --keep order
      distrain predict runs/NAME 'new/*.parquet' --out scores --keep user --keep label
      distrain predict runs/NAME s3://clicks/day_24 --out s3://clicks/day_24-scores
    """
    from distrain.storage.outputs import check_output

    folder = find_model(model, checkpoint)
    check_data(data)
    check_output(out, overwrite)
    print_remark("loading the model")  # before imports, which take seconds

    import torch

    from distrain.predict.prediction import PredictRequest, check_request, predict
    from distrain.predict.raw_rows import RawOptions
    from distrain.workers.local import device_of_workers
    from distrain.workers.open_cluster import ClusterRequest, open_cluster

    # On a scheduler's workers each task uses the GPU that its worker sees.
    device = device_of_workers(workers) if scheduler is None else "auto"
    request = PredictRequest(
        folder,
        data,
        out,
        keep,
        batch_size,
        overwrite,
        device,
        RawOptions(is_raw, bad_lines == "skip", max_bad),
    )
    checked = check_request(request)  # starting workers takes seconds; a mistyped path should not
    if_interrupted(f"nothing was written to {out}")
    wanted = ClusterRequest(scheduler, workers, device=device)
    workers_given = given_options(click.get_current_context(), ["workers"])
    are_small = sum(file.size_bytes for file in checked.files) < _SMALL_BYTES
    here = are_small and device == "cpu" and not workers_given
    if here:
        torch.set_num_threads(1)  # as in each worker
    opened = nullcontext() if here else open_cluster(wanted)
    with opened as client, WorkProgress(progress_console()) as progress:
        result = predict(
            request,
            client,
            lambda done, total, rows: progress.show("scoring", done, total, rows, "tasks"),
            progress.show_prep,
            checked,
        )
    answer = {"rows": result.rows, "files": result.files}
    if result.prepared is not None:
        answer["bad_lines"] = result.prepared.to_json()["bad_lines"]
        print_facts(left_out_of(result.prepared), 20)
        warn_of_scored(result.prepared)
    print_answer(folder=str(out), **answer)
    print_result(f"{counted(result.rows, 'row')} in {counted(result.files, 'file')}: {out}")
