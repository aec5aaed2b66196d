"""`distrain export`: a saved model for torch alone, or for ONNX runtimes."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.output import answer, tell
from distrain.cli.params import json_option

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
@json_option("Print what was written as JSON.")
def command(model: Path, out: Path, to: "Form", overwrite: bool, as_json: bool) -> None:
    """Write a saved model to the folder OUT in a form that needs no distrain.

    The folder holds `model.pt2`, or `model.onnx` and its weights in `model.onnx.data`, and
    `inputs.json`, which says what the model takes: the columns in order, their types and
    cardinalities. The model gives logits; a sigmoid makes them probabilities.

    \b
    Examples:
      distrain export runs/NAME exported
      distrain export runs/NAME exported --to onnx
    """
    from distrain.cli.models import find_model
    from distrain.storage import check_free

    folder = find_model(model)
    check_free(out, overwrite)

    from distrain.models import load_model
    from distrain.models.export_files import write_export

    if_interrupted(f"nothing was written to {out}")
    saved = load_model(folder)
    write_export(out, saved, to, replace=overwrite)
    size_bytes = sum(file.stat().st_size for file in out.iterdir())
    if as_json:
        answer(folder=str(out), kind=saved.spec.kind, to=to, size_bytes=size_bytes)
    tell(f"{saved.spec.kind} for {to}, {size_bytes / 2**20:,.1f} MiB: {out}")
