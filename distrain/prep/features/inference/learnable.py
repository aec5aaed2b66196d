"""Tests whether target means of a column, from some rows, predict the labels of other rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.prep.features.bad_values import BadValues
from distrain.prep.features.document import FormatSpec
from distrain.prep.features.rows import labels_of
from distrain.prep.features.targets import TargetSpec

Labels = np.ndarray[Any, np.dtype[np.float64]]

_SMOOTHING = 20
_CHANCE_SD = 3.0
"""A correlation above this number of standard deviations is not chance."""


def sampled_labels(values: pa.Array, target: object, text: FormatSpec | None) -> Labels | None:
    """Return the target's labels in the sample, NaN where missing.

    `None` if the target is multiclass or a placeholder, or has unusable values.
    """
    spec = TargetSpec.model_validate(target)
    if spec.kind == "multiclass" or spec.placeholder:
        return None
    known = values.is_valid()
    try:
        labels = labels_of(values.filter(known), spec, text)
    except BadValues:  # `prep` reports them
        return None
    found = np.full(len(values), np.nan)
    found[known.to_numpy(zero_copy_only=False)] = labels.to_numpy(zero_copy_only=False)
    return found


def is_learnable(values: pa.Array, labels: Labels) -> bool:
    """Return True if target means of every second row correlate with the labels of the others.

    The test is Pearson's correlation r of these means with the labels of the other n rows. If the
    values predict nothing, r sqrt(n) is about standard normal.
    """
    codes = pc.dictionary_encode(values, null_encoding="encode").indices.to_numpy()
    known = np.isfinite(labels)
    codes, labels = codes[known], labels[known]
    if not len(labels):
        return False
    made, seen = slice(0, None, 2), slice(1, None, 2)
    size, mean = int(codes.max()) + 1, float(labels[made].mean())
    counts = np.bincount(codes[made], minlength=size)
    sums = np.bincount(codes[made], labels[made], size)
    means = ((sums + _SMOOTHING * mean) / (counts + _SMOOTHING))[codes[seen]]
    others = labels[seen]
    if means.std() == 0 or others.std() == 0:
        return False
    correlation = float(np.corrcoef(means, others)[0, 1])
    return correlation * math.sqrt(len(others)) > _CHANCE_SD
