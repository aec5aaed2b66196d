"""`distrain evaluate`: a saved model's metrics on labelled rows."""

from pathlib import Path

import click

from distrain.cli.options import POSITIVE, json_option
from distrain.cli.saved.models import check_data, checkpoint_option, find_model, scoring_options

_BATCH_ROWS = 4096
"""What a core's caches hold of a layer's values; 65,536 took 42 % more processor time."""


@click.command()
@scoring_options(_BATCH_ROWS)
@click.option("--threads", type=POSITIVE, default=1, help="torch's CPU threads.")
@click.option(
    "--group",
    metavar="COLUMN",
    help="Also print the AUC within the rows of each value of COLUMN, such as a user's id, and its "
    "mean over the values, weighted by rows.",
)
@click.option(
    "--max-auc-bound",
    type=click.FloatRange(min=0),
    default=1e-3,
    help="Where bins of the logit leave more doubt than this about AUC or average precision, the "
    "rows are scored once more and ordered by their scores.",
)
@checkpoint_option
@json_option("Print one JSON object.")
def command(
    model: Path,
    data: tuple[str, ...],
    batch_size: int,
    threads: int,
    group: str | None,
    max_auc_bound: float,
    checkpoint: str | None,
    as_json: bool,
) -> None:
    """Score the labelled rows of DATA with a saved model and print its metrics.

    RUN_OR_MODEL is a run directory, its model folder, or the folder of one checkpoint; DATA are
    prepared parquet files, folders or globs.

    \b
    Examples:
      distrain evaluate runs/dlrm-20260301-123000-ab12 criteo/valid
      distrain evaluate runs/NAME/model 'criteo/valid/*.parquet' --json
      distrain evaluate runs/NAME criteo/valid --group C1
      distrain evaluate runs/NAME criteo/valid --checkpoint 2000
    """
    folder = find_model(model, checkpoint)
    check_data(data)

    from dataclasses import asdict

    import torch

    from distrain.cli.output import print_json, print_result, progress_console
    from distrain.cli.progress_bars import WorkProgress
    from distrain.loader import Dataset
    from distrain.scoring import check_group, evaluate_groups, evaluate_saved
    from distrain.train.saving import open_model

    torch.set_num_threads(threads)
    saved = open_model(folder)
    dataset = Dataset(data, saved.schema)
    if group is not None:
        check_group(dataset, group)
    with WorkProgress(progress_console()) as progress:

        def show(phase: str, done: int, total: int) -> None:
            progress.show(phase, done, total, done, "rows")

        report = evaluate_saved(saved, dataset, batch_size, max_auc_bound, show)
        found = asdict(report)
        if group is not None:
            found |= evaluate_groups(saved, dataset, group, batch_size, show).to_json()
    if as_json:
        print_json(found)
        return
    largest = found.pop("largest_groups", [])
    for name, value in found.items():
        print_result(f"{name.replace('_', ' '):28} {_shown(value)}")
    if largest:
        print_result(f"\nthe largest groups of {group}:")
    for row in largest:
        rows, auc = _shown(row["rows"]), _shown(row["auc"])
        print_result(f"  {row['value']!s:26} {rows:>14} rows  AUC {auc}")


def _shown(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else "-" if value is None else str(value)
