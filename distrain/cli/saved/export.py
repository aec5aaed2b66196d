"""`distrain export`: a saved model for torch alone, or for ONNX runtimes."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.options import PATH, json_option
from distrain.cli.output import print_answer, print_result
from distrain.cli.saved.models import checkpoint_option, find_model, model_argument
from distrain.wording import byte_size

if TYPE_CHECKING:
    from distrain.models import Form


@click.command()
@model_argument
@click.argument("out", type=PATH)
@click.option(
    "--to",
    type=click.Choice(["torch", "onnx"]),
    default="torch",
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
    from distrain.storage import check_free

    folder = find_model(model, checkpoint)
    check_free(out, overwrite)

    from distrain.models import write_export
    from distrain.train.saving import open_model

    if_interrupted(f"nothing was written to {out}")
    saved = open_model(folder)
    write_export(out, saved, to, replace=overwrite)
    size_bytes = sum(file.stat().st_size for file in out.iterdir())
    if as_json:
        print_answer(folder=str(out), kind=saved.spec.kind, to=to, size_bytes=size_bytes)
    print_result(f"{saved.spec.kind} for {to}, {byte_size(size_bytes)}: {out}")
