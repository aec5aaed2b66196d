"""`distrain export`: a saved model for torch alone, or for ONNX runtimes."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.output import answer, tell
from distrain.cli.params import checkpoint_option, json_option

if TYPE_CHECKING:
    from distrain.models.export_files import Form


@click.command()
@click.argument("model", metavar="RUN_OR_MODEL", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--to",
    type=click.Choice(["torch", "onnx"]),
    default="torch",
    show_default=True,
    help="torch: a program for torch.export.load; onnx: a graph for ONNX runtimes.",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing output folder.")
@checkpoint_option
@json_option("Print what was written as JSON.")
def command(
    model: Path, out: Path, to: "Form", overwrite: bool, checkpoint: str | None, as_json: bool
) -> None:
    """Write a saved model to the folder OUT in a form that needs no distrain.

    RUN_OR_MODEL is a run directory, its model folder, or the folder of one checkpoint.

    The folder holds `model.pt2`, or `model.onnx` and its weights in `model.onnx.data`, and
    `inputs.json`, which says what the model takes: the columns in order, their types and
    cardinalities. The model gives logits; a sigmoid makes them probabilities.

    \b
    Examples:
      distrain export runs/NAME exported
      distrain export runs/NAME exported --to onnx
      distrain export runs/NAME exported --checkpoint best
    """
    from distrain.cli.models import find_model
    from distrain.storage import check_free

    folder = find_model(model, checkpoint)
    check_free(out, overwrite)

    from distrain.models.export_files import write_export
    from distrain.train.checkpoint_model import open_model

    if_interrupted(f"nothing was written to {out}")
    saved = open_model(folder)
    write_export(out, saved, to, replace=overwrite)
    size_bytes = sum(file.stat().st_size for file in out.iterdir())
    if as_json:
        answer(folder=str(out), kind=saved.spec.kind, to=to, size_bytes=size_bytes)
    tell(f"{saved.spec.kind} for {to}, {size_bytes / 2**20:,.1f} MiB: {out}")
