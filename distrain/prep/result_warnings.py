"""Warnings about the result of a preparation, as texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrain.formatting import join_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distrain.prep.request import PrepResult

_MOST_UNKNOWN = 0.5
_ONE_LABEL = {
    "training": "only retrieval (two_tower, sasrec_retrieval) can learn from rows of one label",
    "validation": "they have no AUC: unless the model is for retrieval, check the split",
}
_COARSE = "set normalize: true, or derive hours from times (epoch: s, as: hour)"


def warnings_of(result: PrepResult, is_fitted_anew: bool) -> Iterator[str]:
    """Yield warnings about prepared rows.

    The warnings are about files that the workflow has learnt from before (their rows count twice),
    equal labels, rounded values, and columns whose values are mostly out of vocabulary. For the
    last, `is_fitted_anew` must be True: the workflow was fitted on these rows.
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
