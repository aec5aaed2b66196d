"""`distrain synth`: generates Criteo-shaped rows with a known best AUC."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.options import COUNT, PATH, json_option
from distrain.cli.output import (
    json_wanted,
    print_answer,
    print_remark,
    print_result,
    progress_console,
    result_console,
    table_of,
)
from distrain.cli.progress_bars import WorkProgress
from distrain.formatting import byte_size, command_line

if TYPE_CHECKING:
    from distrain.prep.synthetic.generate import SynthProgress, SynthResult


@click.command()
@click.option("--rows", type=COUNT, required=True, help="Training rows, such as 250k or 1M.")
@click.option(
    "--out",
    type=PATH,
    required=True,
    help="The folder to write; it appears complete or not at all.",
)
@click.option("--valid-rows", type=COUNT, default="0", help="Validation rows.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["tsv", "tsv.gz", "parquet"]),
    default="tsv",
    help="Criteo's raw text, plain or gzipped, or the same values as parquet.",
)
@click.option("--files", default=1, help="The number of files per split.")
@click.option(
    "--scale",
    default=0.01,
    help="Factor of the cardinalities of large category columns; 1 gives Criteo's cardinalities.",
)
@click.option("--click-rate", default=0.03, help="The mean probability of a click.")
@click.option("--seed", default=0, help="Seed of the planted model and of the rows.")
@click.option("--overwrite", is_flag=True, help="Replace OUT if it exists.")
@json_option("Print the result as JSON.")
def command(
    rows: int,
    out: Path,
    valid_rows: int,
    file_format: str,
    files: int,
    scale: float,
    click_rate: float,
    seed: int,
    overwrite: bool,
) -> None:
    """Generate Criteo-shaped rows whose best reachable AUC is known.

    Labels are drawn from a planted model of the features. OUT/planted.json contains the best AUC
    and log loss that any model can reach on exactly these rows. Equal options give equal rows.

    \b
    Examples:
      distrain synth --rows 1M --valid-rows 100k --out clicks
      distrain synth --rows 4G --scale 1 --format tsv.gz --files 24 --out /data/clicks
      distrain synth --rows 200k --click-rate 0.25 --format parquet --out clicks
    """
    from distrain.prep.synthetic.generate import SynthRequest, generate

    request = SynthRequest(
        out, rows, valid_rows, seed, scale, click_rate, file_format, files, overwrite
    )
    if_interrupted(f"nothing was written to {out}")
    with WorkProgress(progress_console()) as bars:

        def show(at: "SynthProgress") -> None:
            bars.show("generating", at.rows_done, at.rows_total, at.rows_done, "rows")

        result = generate(request, show)
    if json_wanted():
        splits = {name: asdict(split) for name, split in result.splits.items()}
        size_bytes, wall_s = result.size_bytes, result.wall_s
        print_answer(folder=str(result.out), splits=splits, size_bytes=size_bytes, wall_s=wall_s)
    else:
        _print(result)


def _print(result: "SynthResult") -> None:
    titles = ("split", "rows", "clicks", "click rate", "best AUC", "best log loss")
    columns = {title: {"justify": "right"} for title in titles} | {"split": {}}
    rows = (
        (
            name,
            f"{split.rows:,}",
            f"{split.clicks:,}",
            f"{split.clicks / split.rows:.2%}",
            f"{split.bayes_auc:.4f}",
            f"{split.bayes_log_loss:.4f}",
        )
        for name, split in result.splits.items()
    )
    result_console().print(table_of(columns.items(), rows))
    # Not through rich: a path or a command to copy must not be wrapped or coloured.
    print_result(
        f"{byte_size(result.size_bytes)} in {result.wall_s:.1f} s "
        f"({result.rows_per_s:,.0f} rows/s); the best AUC is in {result.out / 'planted.json'}"
    )
    print_remark(f"next: {next_command(result)}")


def next_command(result: "SynthResult") -> str:
    """Return the `distrain prep` command for the generated rows."""
    words = ["prep", _pattern(result, "train")]
    if "valid" in result.splits:
        words += ["--valid", _pattern(result, "valid")]
    return command_line(*words, "--out", f"{result.out}-prepared")


def _pattern(result: "SynthResult", split: str) -> str:
    files = result.splits[split].files
    name = files[0] if len(files) == 1 else f"{split}-*.{result.request.format}"
    return str(result.out / name)
