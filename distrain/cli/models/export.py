"""`distrain export`: writes a saved model for plain torch, or for ONNX runtimes."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.models.models import (
    check_data,
    checkpoint_option,
    find_model,
    model_argument,
    validation_of,
)
from distrain.cli.options import PATH, PLACE, json_option
from distrain.cli.output import print_answer, print_facts, print_remark, print_result
from distrain.errors import DistrainError, InputError
from distrain.formatting import byte_size, join_names

if TYPE_CHECKING:
    from distrain.models.export import Form
    from distrain.models.quantised import TableForm
    from distrain.predict.serving.folder import Written


@click.command()
@model_argument
@click.argument("place", metavar="[OUT]", required=False, type=PATH)
@click.option("--out", type=PATH, help="The folder to write; it may also be the second argument.")
@click.option(
    "--to",
    type=click.Choice(["torch", "onnx"]),
    default="torch",
    help="torch: a program for torch.export.load; onnx: a graph for ONNX runtimes.",
)
@click.option(
    "--tables",
    type=click.Choice(["fp32", "fp16", "int8", "int4"]),
    default="fp32",
    help="The type of embedding tables. int8 and int4 have one scale per row.",
)
@click.option(
    "--valid",
    metavar="DATA",
    multiple=True,
    help="Labelled rows, prepared or raw, on which the model with the exported tables is "
    "measured; the metrics are written to `manifest.json`. May be repeated. Default with --tables "
    "other than fp32: the run's validation data.",
)
@click.option(
    "--items",
    type=PLACE,
    help="Also write the vectors of these items, and the user tower separately: prepared parquet, "
    "one row per item.",
)
@click.option(
    "--with-workflow",
    is_flag=True,
    help="Include the run's workflow: the folder then scores raw rows, without distrain.",
)
@click.option(
    "--sample",
    metavar="FILE",
    help="With --with-workflow: raw rows. The folder's scores of the first 200 are compared with "
    "those of `distrain predict`. Default: the file that the workflow was fitted on.",
)
@click.option(
    "--since",
    type=PATH,
    metavar="FOLDER",
    help="Write a delta: the changes since this export, which may be complete or a delta.",
)
@click.option("--overwrite", is_flag=True, help="Replace OUT if it exists.")
@checkpoint_option
@json_option("Print the result as JSON.")
def command(
    model: Path,
    place: Path | None,
    out: Path | None,
    to: "Form",
    tables: "TableForm",
    valid: tuple[str, ...],
    items: Path | str | None,
    with_workflow: bool,
    sample: str | None,
    since: Path | None,
    overwrite: bool,
    checkpoint: str | None,
) -> None:
    """Write a saved model to the folder OUT in a form that does not need distrain.

    RUN_OR_MODEL is a run folder, its model folder, or the folder of one checkpoint.

    The folder contains `model.pt2`, or `model.onnx` with its weights in `model.onnx.data`, and
    `inputs.json`, which describes the model's inputs: the columns in order, their types and
    cardinalities. The model returns logits; a sigmoid turns them into probabilities. For retrieval
    models (`two_tower`, `sasrec_retrieval`), --items adds `items.parquet` with ids and vectors.
    Their dot products with a user's vector, from `query.pt2` or `query.onnx`, rank the items.

    With --with-workflow the export takes raw rows, as `distrain predict` does. The folder then also
    contains vocabularies, hashes of all files, some rows with their scores (golden rows), and
    `score.py`, which needs only NumPy and the model's runtime. `python OUT/score.py --check` scores
    the golden rows again and compares. With --to onnx, `raw.onnx` takes raw columns, unless ONNX
    cannot express one of them. See docs/models/serving.md.

    With --since, only changed table rows, new or removed vocabulary values, and small files are
    written. `python OUT/deltas.py NEW WHOLE DELTA ...` writes the folder NEW: the complete export
    WHOLE with all later deltas, in order.

    \b
    Examples:
      distrain export runs/NAME exported
      distrain export runs/NAME exported --to onnx
      distrain export runs/NAME exported --checkpoint best
      distrain export runs/NAME exported --tables int8
      distrain export runs/NAME exported --items shop/items
      distrain export runs/NAME --to onnx --with-workflow --tables int8 --out served
      distrain export runs/NEXT tuesday --to onnx --since monday
    """
    from distrain.storage.outputs import check_free, check_inputs_outside

    if sample is not None and not with_workflow:
        raise InputError(
            "--sample needs --with-workflow",
            hint="Without it the model takes ids, not raw rows.",
        )
    if (out is None) == (place is None):
        problem = "is missing" if out is None else "is given twice"
        raise InputError(f"the folder to write {problem}", hint="Give it once: --out FOLDER.")
    out = out or place
    assert out is not None
    folder = find_model(model, checkpoint)
    check_free(out, overwrite)
    if valid:
        check_data(valid)
    if items is not None:
        check_data([str(items)])

    print_remark("loading the model")  # before imports, which take seconds
    from functools import partial

    from distrain.predict.load_model import open_model
    from distrain.predict.retrieval import table_of_items, write_towers
    from distrain.predict.serving.folder import export_folder

    if_interrupted(f"nothing was written to {out}")
    saved = open_model(folder)
    if tables != "fp32" and not valid:
        valid = _known_validation(model, saved.about)
    check_inputs_outside(out, [folder, *valid, *(one for one in (items, sample, since) if one)])
    beside = None
    if items is not None:
        dataset = table_of_items(saved, items)
        beside = partial(write_towers, saved=saved, to=to, items=dataset)
    written = export_folder(
        out,
        folder,
        saved,
        to,
        tables=tables,
        with_workflow=with_workflow,
        sample=sample,
        valid=valid,
        since=since,
        beside=beside,
        replace=overwrite,
    )
    size_bytes = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    more: dict[str, Any] = {} if written.served is None else asdict(written.served)
    parts = {"delta": written.delta and asdict(written.delta), "validation": written.validation}
    more |= {name: part for name, part in parts.items() if part is not None}
    print_answer(folder=str(out), kind=saved.spec.kind, to=to, size_bytes=size_bytes, **more)
    _print_findings(written, to)
    print_result(f"{saved.spec.kind} for {to}, {byte_size(size_bytes)}: {out}")


def _print_findings(written: "Written", to: "Form") -> None:
    facts = {}
    if (served := written.served) is not None:
        facts = {
            "golden rows": f"{served.rows:,}",
            "largest difference to predict": f"{served.largest_difference:.1e}",
        }
        if to == "onnx":
            names: dict[str, list[str]] = {}
            for name, reason in served.no_graph.items():
                names.setdefault(reason, []).append(name)
            why = "; ".join(f"{join_names(of, 3)}: {reason}" for reason, of in names.items())
            facts["raw.onnx"] = f"not written; {why}" if why else "written, takes raw columns"
    if (delta := written.delta) is not None:
        changed = f"{delta.changed_rows:,} of {delta.rows:,}"
        facts["changed rows"] = f"{changed}, {delta.dropped_rows:,} removed"
        facts["new values"] = f"{delta.new_values:,}, {delta.dropped_values:,} removed"
    if (metrics := written.validation) is not None:
        for name, trained in metrics["fp32"].items():
            if trained is not None:  # metrics of a regression are among its targets
                facts[name.replace("_", " ")] = f"{metrics[name]} (fp32: {trained})"
    print_facts(facts, 30)


def _known_validation(run: Path, about: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the validation data of a run or an ensemble, to measure the exported tables.

    Returns `()`, and prints a remark, if the data is unknown or missing. `about` has the model's
    properties; those of an ensemble include its validation data.
    """
    try:
        valid = tuple(about.get("valid", ())) or validation_of([run])
        check_data(valid)
    except DistrainError as error:
        print_remark(f"the tables' metrics are not measured: {error.message}; see --valid")
        return ()
    return valid
