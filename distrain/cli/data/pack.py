"""`distrain pack`: a table in the layout that is read fastest."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.options import COUNT, PATH, json_option, row_group_option
from distrain.cli.output import print_facts, print_json, progress_console
from distrain.cli.progress_bars import WorkProgress
from distrain.errors import InputError, SchemaError
from distrain.formatting import byte_size

if TYPE_CHECKING:
    from distrain.loader.packed.pack import PackReport
    from distrain.schema.schema import Schema


@click.command()
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.option(
    "--schema",
    "schema_path",
    type=PATH,
    help="Schema file, or a folder with one; by default the one beside the data, or one above it.",
)
@click.option(
    "--out",
    "output",
    required=True,
    type=PATH,
    help="Folder to make; it appears whole or not at all.",
)
@row_group_option
@click.option(
    "--rows-per-file",
    type=COUNT,
    default=4194304,
    help="Rows per file, rounded up to whole row groups.",
)
@click.option("--fill-null-id", type=int, help="What missing ids become; else they are refused.")
@click.option(
    "--fill-null-value", type=float, help="What missing values become; else they are refused."
)
@click.option("--hive", is_flag=True, help="Folders named KEY=VALUE give a column KEY.")
@click.option("--overwrite", is_flag=True, help="Replace the output folder if it exists.")
@json_option("Print what was done as JSON.")
def command(
    inputs: tuple[str, ...],
    schema_path: Path | None,
    output: Path,
    row_group_rows: int,
    rows_per_file: int,
    fill_null_id: int | None,
    fill_null_value: float | None,
    hive: bool,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write training parquet in the layout that is read fastest.

    INPUT are parquet files, folders, globs or URLs. The rows keep their order; columns that the
    schema gives no role are left out. Every value is checked as training checks it. The result is
    parquet that any tool opens, neither compressed nor encoded: more disk, and no decoding.

    \b
    Examples:
      distrain pack criteo/train --out packed/train
      distrain pack 's3://clicks/day=*' --hive --schema schema.pbtxt --out /nvme/clicks
    """
    from distrain.loader.partition.footers import PARQUET_SUFFIXES
    from distrain.schema.schema import Schema
    from distrain.storage.inputs import list_inputs
    from distrain.storage.outputs import check_free

    files = list_inputs(inputs, suffixes=PARQUET_SUFFIXES)
    schema = None if schema_path is None else Schema.load(schema_path)
    check_free(output, overwrite)

    from distrain.loader.packed.pack import pack
    from distrain.loader.packed.writer import MOST_GROUP_ROWS

    if not 1 <= row_group_rows <= MOST_GROUP_ROWS or rows_per_file < 1:
        raise click.UsageError(
            f"--row-group-rows is 1 to {MOST_GROUP_ROWS}, --rows-per-file at least 1."
        )
    _refuse_prep_folders(inputs)
    if_interrupted(f"nothing was written to {output}")
    with WorkProgress(progress_console()) as progress:
        report = pack(
            inputs,
            schema or _schema_beside(inputs[0], files[0].path),
            output,
            row_group_rows=row_group_rows,
            rows_per_file=rows_per_file,
            overwrite=overwrite,
            hive=hive,
            fill_null_id=fill_null_id,
            fill_null_value=fill_null_value,
            progress=lambda done, total: progress.show("packing", done, total, done, "rows"),
        )
    _print(report, output, as_json)


def _refuse_prep_folders(inputs: tuple[str, ...]) -> None:
    """Refuse a whole folder of `distrain prep`: its vocabularies are no rows."""
    for folder in map(Path, inputs):
        if (folder / "train").is_dir() and (folder / "schema.pbtxt").is_file():
            has_valid = (folder / "valid").is_dir()
            raise InputError(
                "this folder holds more than rows: `distrain prep` writes vocabularies beside them",
                where={"input": str(folder)},
                hint=f"Pack {folder / 'train'}"
                + (f", and {folder / 'valid'} to another --out." if has_valid else "."),
            )


def _schema_beside(pattern: str, file: str) -> "Schema":
    from distrain.schema.files import find_schema_beside, hint_without_schema
    from distrain.schema.schema import Schema

    beside = find_schema_beside(file)
    if beside is None:
        raise SchemaError(
            "found no schema beside the data",
            where={"input": pattern},
            hint=hint_without_schema(
                file, "Name one with --schema; `distrain prep` writes schema.pbtxt and schema.json."
            ),
        )
    return Schema.load(beside)


def _print(report: "PackReport", output: Path, as_json: bool) -> None:
    if as_json:
        print_json({**dataclasses.asdict(report), "output": str(output)})
        return
    rate = report.rows / max(report.seconds, 1e-9)
    lines = {
        "rows": f"{report.rows:,} in {report.files} files",
        "size": f"{byte_size(report.bytes_out)}, from {byte_size(report.bytes_in)}",
        "time": f"{report.seconds:.1f} s, {rate:,.0f} rows/s",
        "written to": str(output),
    }
    print_facts(lines, 12)
