"""Warnings about the result of a preparation, as texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrain.formatting import join_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distrain.prep.request import PrepResult
    from distrain.prep.updates.column_drift import Drifted

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


def warnings_of(result: PrepResult, is_fitted_anew: bool) -> Iterator[str]:
    """Yield warnings about prepared rows.

    The warnings are about files that the workflow has learnt from before (their rows count twice),
    equal labels, rare or rounded values, and drift. `is_fitted_anew` is False if a saved workflow
    was used; the suggested remedies differ.
    """
    if result.learnt_before:
        yield (
            f"the workflow already contains {', '.join(result.learnt_before)}, so its "
            "rows now count twice; without --update the ids are the same and nothing is counted"
        )
    for split, report in (("training", result.train), ("validation", result.valid)):
        if report is not None and report.num_ones in (0, report.num_rows):
            label = int(report.num_ones > 0)
            yield (
                f"all {report.num_rows:,} {split} rows have the label {label}; {_ONE_LABEL[split]}"
            )
    for column, (least, greatest) in result.train.coarse.items():
        yield (
            f"values of {column} are between {least:.0f} and {greatest:.0f}, where "
            "float32 "
            f"cannot distinguish many of them; {_COARSE}"
        )
    shares = result.train.unknown_share.items() if is_fitted_anew else ()
    rare = [f"{column} ({share:.0%})" for column, share in shares if share > _MOST_UNKNOWN]
    if rare:
        yield (
            f"most training values of {join_names(rare, 5)} are out of vocabulary; lower "
            "freq_threshold, or raise max_size or num_buckets"
        )
    for one in result.drifted:
        remedy = (_OF_THE_SPLIT if is_fitted_anew else _REMEDIES)[one.what]
        if one.what == "unknown_share" and result.new_ids is not None:
            remedy = "they are still too rare: --keep-counts adds up their counts over updates"
        yield (f"{one.split}: {_drift_text(one)}; {remedy}")


def _drift_text(one: Drifted) -> str:
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
