"""`distrain synth`: Criteo-shaped rows with a known best AUC."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.output import answer, progress_console, result_console, say, tell
from distrain.cli.params import COUNT, json_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from distrain.synth import SynthProgress, SynthRequest, SynthResult

PLAIN_INTERVAL_S = 5.0


@click.command()
@click.option("--rows", type=COUNT, required=True, help="Training rows, such as 250k or 1M.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="The folder to write; it appears whole or not at all.",
)
@click.option("--valid-rows", type=COUNT, default="0", show_default=True, help="Validation rows.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["tsv", "tsv.gz", "parquet"]),
    default="tsv",
    show_default=True,
    help="Criteo's raw text, plain or gzipped, or the same values in parquet.",
)
@click.option(
    "--files", default=1, show_default=True, help="How many files each split is cut into."
)
@click.option(
    "--scale",
    default=0.01,
    show_default=True,
    help="Factor on the cardinalities of long category columns; 1 is Criteo's own size.",
)
@click.option("--click-rate", default=0.03, show_default=True, help="Mean click probability.")
@click.option("--seed", default=0, show_default=True, help="Names the planted model and the rows.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier data set in that folder.")
@json_option("Print what was written as JSON.")
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
    as_json: bool,
) -> None:
    """Generate Criteo-shaped rows whose best reachable AUC is known.

    Labels are drawn from a planted model of the features. The AUC and the log loss that nobody can
    beat on the very rows written stand in OUT/planted.json. Equal options give equal rows.

    \b
    Examples:
      distrain synth --rows 1M --valid-rows 100k --out clicks
      distrain synth --rows 4G --scale 1 --format tsv.gz --files 24 --out /data/clicks
      distrain synth --rows 200k --click-rate 0.25 --format parquet --out clicks
    """
    from distrain.synth import SynthRequest, generate

    request = SynthRequest(
        out, rows, valid_rows, seed, scale, click_rate, file_format, files, overwrite
    )
    if_interrupted(f"nothing was written to {out}")
    console = progress_console()
    if console.is_terminal:
        result = _with_bar(console, request)
    else:
        result = generate(request, _plain_lines())
    if as_json:
        answer(**_as_json(result))
        return
    _tell(result)


def _with_bar(console: "Console", request: "SynthRequest") -> "SynthResult":
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from distrain.synth import generate

    columns = (TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("train", total=request.rows + request.valid_rows)

        def show(progress: "SynthProgress") -> None:
            bar.update(task, description=progress.split, completed=progress.rows_done)

        return generate(request, show)


def _plain_lines() -> "Callable[[SynthProgress], None]":
    """Tells of progress in a line of text every few seconds."""
    import time

    last_s = time.monotonic()

    def show(progress: "SynthProgress") -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= PLAIN_INTERVAL_S:
            last_s = time.monotonic()
            say(f"{progress.split}: {progress.rows_done:,} of {progress.rows_total:,} rows")

    return show


def _as_json(result: "SynthResult") -> dict[str, Any]:
    return {
        "folder": str(result.out),
        "splits": {name: asdict(split) for name, split in result.splits.items()},
        "size_bytes": result.size_bytes,
        "wall_s": result.wall_s,
    }


def _tell(result: "SynthResult") -> None:
    from rich.table import Table

    table = Table()
    for title in ("split", "rows", "clicks", "click rate", "Bayes AUC", "Bayes log loss"):
        table.add_column(title, justify="left" if title == "split" else "right")
    for name, split in result.splits.items():
        table.add_row(
            name,
            f"{split.rows:,}",
            f"{split.clicks:,}",
            f"{split.clicks / split.rows:.2%}",
            f"{split.bayes_auc:.4f}",
            f"{split.bayes_log_loss:.4f}",
        )
    result_console().print(table)
    # Not through rich: a path or a command to copy must not be wrapped or coloured.
    tell(
        f"{result.size_bytes / 1e6:,.1f} MB in {result.wall_s:.1f} s "
        f"({result.rows_per_s:,.0f} rows/s); the truth is in {result.out / 'planted.json'}"
    )
    say(f"next: {next_command(result)}")


def next_command(result: "SynthResult") -> str:
    """The `distrain prep` that prepares what was generated."""
    words = ["distrain", "prep", _pattern(result, "train")]
    if "valid" in result.splits:
        words += ["--valid", _pattern(result, "valid")]
    return shlex.join([*words, "--out", f"{result.out}-prepared"])


def _pattern(result: "SynthResult", split: str) -> str:
    files = result.splits[split].files
    name = files[0] if len(files) == 1 else f"{split}-*.{result.request.format}"
    return str(result.out / name)
