"""`distrain evaluate`: a saved model's metrics on labelled rows."""

from pathlib import Path

import click

from distrain.cli.params import checkpoint_option, json_option


@click.command()
@click.argument("model", metavar="RUN_OR_MODEL", type=click.Path(path_type=Path))
@click.argument("data", nargs=-1, required=True)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    default=65536,
    show_default=True,
    help="Rows scored at once.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="torch's CPU threads.",
)
@click.option(
    "--group",
    metavar="COLUMN",
    help="Also tell the AUC within the rows of each value of COLUMN, such as a user's id, and its "
    "mean over the values, weighted by rows.",
)
@click.option(
    "--max-auc-bound",
    type=click.FloatRange(min=0),
    default=1e-3,
    show_default=True,
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
    """Score the labelled rows of DATA with a saved model and tell its metrics.

    RUN_OR_MODEL is a run directory, its model folder, or the folder of one checkpoint; DATA are
    prepared parquet files, folders or globs.

    \b
    Examples:
      distrain evaluate runs/dlrm-20260301-123000-ab12 criteo/valid
      distrain evaluate runs/NAME/model 'criteo/valid/*.parquet' --json
      distrain evaluate runs/NAME criteo/valid --group C1
      distrain evaluate runs/NAME criteo/valid --checkpoint 2000
    """
    from distrain.cli.models import check_data, find_model

    folder = find_model(model, checkpoint)
    check_data(data)

    from dataclasses import asdict

    import torch

    from distrain.cli.output import document, progress_console, tell
    from distrain.cli.progress import WorkProgress
    from distrain.loader import Dataset
    from distrain.scoring import check_group, evaluate_groups, evaluate_saved
    from distrain.train.checkpoint_model import open_model

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
        document(found)
        return
    largest = found.pop("largest_groups", [])
    for name, value in found.items():
        tell(f"{name.replace('_', ' '):28} {_shown(value)}")
    if largest:
        tell(f"\nthe largest groups of {group}:")
    for row in largest:
        rows, auc = _shown(row["rows"]), _shown(row["auc"])
        tell(f"  {row['value']!s:26} {rows:>14} rows  AUC {auc}")


def _shown(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else "-" if value is None else str(value)
