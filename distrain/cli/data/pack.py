"""`distrain pack`: fills a cache folder before the first training."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.options import PATH, json_option
from distrain.cli.output import print_facts, print_json, progress_console
from distrain.cli.progress_bars import WorkProgress
from distrain.errors import InputError
from distrain.formatting import byte_size

if TYPE_CHECKING:
    from distrain.loader.cache.pack import PackReport


@click.command()
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.argument("cache_dir", metavar="CACHE_DIR", type=PATH)
@click.option(
    "--schema",
    "schema_path",
    type=PATH,
    help="Schema file, or a folder with one. Default: the schema next to the data, or one level "
    "above.",
)
@click.option(
    "--filter", "row_filter", help="The filter of rows; it must equal `data.filter` of the jobs."
)
@click.option(
    "--fill-null-id",
    type=int,
    help="The replacement for missing ids, which are otherwise an error.",
)
@click.option(
    "--fill-null-value",
    type=float,
    help="The replacement for missing values, which are otherwise an error.",
)
@click.option("--hive", is_flag=True, help="Read a column KEY from the names of folders KEY=VALUE.")
@click.option("--overwrite", is_flag=True, help="Replace CACHE_DIR if it exists.")
@json_option("Print the result as JSON.")
def command(
    inputs: tuple[str, ...],
    cache_dir: Path,
    schema_path: Path | None,
    row_filter: str | None,
    fill_null_id: int | None,
    fill_null_value: float | None,
    hive: bool,
    overwrite: bool,
) -> None:
    """Fill a cache folder with decoded training rows.

    INPUT are parquet files, folders, globs or URLs. CACHE_DIR appears complete or not at all. A job
    reads it if `data.cache_dir` names it, and if its schema, `filter`, `fill_null_id`,
    `fill_null_value` and `hive` equal those given here. Values are checked as in training.
    Keep the INPUT files where they are: rows that are missing in the cache are read from them.

    \b
    Examples:
      distrain pack criteo/train criteo/valid /nvme/criteo
      distrain pack 's3://clicks/day=*' --hive --schema schema.pbtxt /nvme/clicks
    """
    from distrain.schema.schema import Schema
    from distrain.storage.inputs import PARQUET_SUFFIXES, list_inputs
    from distrain.storage.outputs import check_free

    list_inputs(inputs, suffixes=PARQUET_SUFFIXES)
    check_free(cache_dir, overwrite)
    _refuse_prep_folders(inputs)
    schema = None if schema_path is None else Schema.load(schema_path)

    from distrain.loader.cache.pack import pack
    from distrain.loader.dataset import Dataset

    dataset = Dataset(
        inputs,
        schema,
        hive=hive,
        fill_null_id=fill_null_id,
        fill_null_value=fill_null_value,
        row_filter=row_filter,
    )
    if_interrupted(f"nothing was written to {cache_dir}")
    with WorkProgress(progress_console()) as progress:
        report = pack(
            dataset,
            cache_dir,
            overwrite=overwrite,
            progress=lambda done, total: progress.show("packing", done, total, done, "rows"),
        )
    _print(report, cache_dir)


def _refuse_prep_folders(inputs: tuple[str, ...]) -> None:
    """Raise `InputError` if an input is the output folder of `distrain prep`, not its `train`."""
    for folder in map(Path, inputs):
        if (folder / "train").is_dir() and (folder / "schema.pbtxt").is_file():
            valid = f" {folder / 'valid'}" if (folder / "valid").is_dir() else ""
            raise InputError(
                "this folder contains more than rows: `distrain prep` writes vocabularies beside "
                "them",
                where={"input": str(folder)},
                hint=f"Pack {folder / 'train'}{valid}.",
            )


def _print(report: "PackReport", cache_dir: Path) -> None:
    print_json({**dataclasses.asdict(report), "cache_dir": str(cache_dir)})
    rate = report.rows / max(report.seconds, 1e-9)
    lines = {
        "rows": f"{report.rows:,} in {report.entries:,} entries",
        "size": byte_size(report.bytes_out),
        "time": f"{report.seconds:.1f} s, {rate:,.0f} rows/s",
        "written to": str(cache_dir),
    }
    print_facts(lines, 12)
