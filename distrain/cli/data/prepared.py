"""Prints the results and warnings of `distrain prep`."""

from typing import TYPE_CHECKING

from distrain.cli.output import print_facts, print_warning
from distrain.formatting import some

if TYPE_CHECKING:
    from distrain.prep.request import PrepResult
    from distrain.prep.updates.column_drift import Drifted


def print_prepared(result: "PrepResult", is_fitted_anew: bool = True) -> None:
    """Print a summary of the prepared rows, and warnings.

    `is_fitted_anew` is False if a saved workflow was used; the remedies in warnings differ.
    """
    seconds = result.seconds["total"]
    rows = "rows" if result.train.num_ones is None else "training rows"  # `None`: unlabelled
    lines = {rows: f"{result.train.num_rows:,} in {result.train.num_files} files"}
    if result.valid:
        lines["validation rows"] = f"{result.valid.num_rows:,} in {result.valid.num_files} files"
    lines |= left_out_of(result)
    lines["ids in all columns"] = f"{sum(result.cardinalities.values()):,}"
    if result.new_ids is not None:
        columns = sum(1 for count in result.new_ids.values() if count)
        lines["new ids"] = f"{sum(result.new_ids.values()):,} in {columns} columns"
    if result.kept_counts:
        rare = sum(result.kept_counts.values())
        lines["counts kept"] = f"of {rare:,} out-of-vocabulary values, {result.kept_bytes:,} bytes"
    lines["time"] = f"{seconds:.1f} s, {result.num_rows / max(seconds, 1e-9):,.0f} rows/s"
    lines["written to"] = str(result.out)
    print_facts(lines, 20)
    warn_of(result, is_fitted_anew)


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


_MOST_UNKNOWN = 0.5
_ONE_LABEL = {
    "training": "only retrieval (two_tower, sasrec_retrieval) can learn from rows of one label",
    "validation": "they have no AUC: unless the model is for retrieval, check the split",
}
_COARSE = "set normalize: true, or derive hours from times (epoch: s, as: hour)"
_SPLIT_DIFFERS = "validation rows differ from training rows, so check the split"
_OF_THE_SPLIT = {
    "mean": _SPLIT_DIFFERS,
    "missing_share": _SPLIT_DIFFERS,
    "unknown_share": "a model learns nothing about them; usual for dates if split by time",
}
_REMEDIES = {
    "mean": "without --workflow, prep fits again",
    "missing_share": "check the column's source; `missing_share` in prep.json has all columns",
    "unknown_share": "--update adds the frequent ones to the vocabulary",
}


def warn_of(result: "PrepResult", is_fitted_anew: bool) -> None:
    """Print warnings about prepared rows: equal labels, rare or rounded values, and drift.

    `is_fitted_anew` is as in `print_prepared`.
    """
    if result.learnt_before:
        print_warning(
            f"warning: the workflow already contains {', '.join(result.learnt_before)}, so its "
            "rows now count twice; without --update the ids are the same and nothing is counted"
        )
    for split, report in (("training", result.train), ("validation", result.valid)):
        if report is not None and report.num_ones in (0, report.num_rows):
            label = int(report.num_ones > 0)
            print_warning(
                f"warning: all {report.num_rows:,} {split} rows have the label {label}; "
                f"{_ONE_LABEL[split]}"
            )
    for column, (least, greatest) in result.train.coarse.items():
        print_warning(
            f"warning: values of {column} are between {least:.0f} and {greatest:.0f}, where "
            "float32 "
            f"cannot distinguish many of them; {_COARSE}"
        )
    shares = result.train.unknown_share.items() if is_fitted_anew else ()
    rare = [f"{column} ({share:.0%})" for column, share in shares if share > _MOST_UNKNOWN]
    if rare:
        print_warning(
            f"warning: most training values of {some(rare, 5)} are out of vocabulary; lower "
            "freq_threshold, or raise max_size or num_buckets"
        )
    for one in result.drifted:
        remedy = (_OF_THE_SPLIT if is_fitted_anew else _REMEDIES)[one.what]
        if one.what == "unknown_share" and result.new_ids is not None:
            remedy = "they are still too rare: --keep-counts adds up their counts over updates"
        print_warning(f"warning: {one.split}: {_drift_text(one)}; {remedy}")


def warn_of_scored(result: "PrepResult") -> None:
    """Print warnings about raw rows that were prepared to be scored: equal labels, and drift."""
    rows, ones = result.train.num_rows, result.train.num_ones
    if ones in (0, rows):
        print_warning(f"warning: all {rows:,} rows have the label {int(ones > 0)}: no AUC")
    if columns := list(dict.fromkeys(one.column for one in result.drifted)):
        these = "1 column differs" if len(columns) == 1 else f"{len(columns)} columns differ"
        print_warning(
            f"warning: {these} from the training rows in mean, missing values or unknown values: "
            f"{some(columns, 10)}; `distrain evaluate --drift TRAIN` compares their distributions"
        )


def _drift_text(one: "Drifted") -> str:
    if one.what == "mean":
        return (
            f"the mean of {one.column} is {one.found:.4g} before Normalize, "
            f"{abs(one.by):.2f} standard deviations from the fitted {one.fitted:.4g} "
            f"(warned beyond {one.bound:g})"
        )
    which = "values are missing" if one.what == "missing_share" else "values are out of vocabulary"
    return (
        f"{one.found:.1%} of {one.column}'s {which}, {one.fitted:.1%} when it was fitted "
        f"(warned beyond {one.bound:.1%} more)"
    )
