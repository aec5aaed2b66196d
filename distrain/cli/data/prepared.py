"""Prints the results and warnings of `distrain prep`."""

from typing import TYPE_CHECKING

from distrain.cli.output import print_facts, print_warning
from distrain.formatting import counted

if TYPE_CHECKING:
    from distrain.prep.request import PrepResult


def print_prepared(result: "PrepResult") -> None:
    """Print a summary of the prepared rows, and warnings."""
    seconds = result.seconds["total"]
    rows = "rows" if result.train.num_ones is None else "training rows"  # `None`: unlabelled
    sides = {rows: result.train, "validation rows": result.valid, "test rows": result.test}
    lines = {
        name: f"{side.num_rows:,} in {counted(side.num_files, 'file')}"
        for name, side in sides.items()
        if side
    }
    lines |= left_out_of(result)
    lines["ids in all columns"] = f"{sum(result.cardinalities.values()):,}"
    if result.new_ids is not None:
        columns = sum(1 for count in result.new_ids.values() if count)
        lines["new ids"] = f"{sum(result.new_ids.values()):,} in {columns} columns"
    lines["time"] = f"{seconds:.1f} s, {result.num_rows / max(seconds, 1e-9):,.0f} rows/s"
    lines["written to"] = str(result.out)
    print_facts(lines, 20)
    for text in result.warnings:
        print_warning(f"warning: {text}")


def left_out_of(result: "PrepResult") -> dict[str, str]:
    """Return facts about skipped rows, as texts by name, for `print_facts`; {} if none was skipped.

    They are the number of bad lines, the first of them, and the number of rows without a label.
    """
    bad, facts = result.bad_lines, {}
    if bad.count:
        first = bad.examples[0]
        facts["skipped bad lines"] = f"{bad.count:,} ({bad.causes})"
        facts["first bad line"] = f"{first.file}, line {first.line}: {first.problem}"
    if result.unlabelled:
        facts["skipped, no label"] = f"{result.unlabelled:,} rows"
    return facts


def warn_of_scored(result: "PrepResult") -> None:
    """Print a warning if all raw rows that were prepared to be scored have the same label."""
    rows, ones = result.train.num_rows, result.train.num_ones
    if ones in (0, rows):
        print_warning(f"warning: all {rows:,} rows have the label {int(ones > 0)}: no AUC")
