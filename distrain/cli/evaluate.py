"""`distrain evaluate`: a saved model's metrics on labelled rows."""

from pathlib import Path

import click


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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    model: Path, data: tuple[str, ...], batch_size: int, threads: int, as_json: bool
) -> None:
    """Score the labelled rows of DATA with a saved model and tell its metrics.

    RUN_OR_MODEL is a run directory or its model folder; DATA are prepared parquet files, folders
    or globs.

    \b
    Examples:
      distrain evaluate runs/dlrm-20260301-123000-ab12 criteo/valid
      distrain evaluate runs/NAME/model 'criteo/valid/*.parquet' --json
    """
    import json
    from dataclasses import asdict

    import torch

    from distrain.cli.models import find_model
    from distrain.loader import Dataset, Loader
    from distrain.models import load_model
    from distrain.train.evaluate import evaluate

    torch.set_num_threads(threads)
    saved = load_model(find_model(model))
    dataset = Dataset(data, saved.schema)
    loader = Loader(dataset, batch_size=batch_size, lanes=1, shuffle="none")
    report = evaluate(saved.model, loader, torch.device("cpu")).compute()
    if as_json:
        click.echo(json.dumps(asdict(report)))
        return
    for name, value in asdict(report).items():
        shown = f"{value:,}" if isinstance(value, int) else "-" if value is None else f"{value:.6g}"
        click.echo(f"{name.replace('_', ' '):28} {shown}")
