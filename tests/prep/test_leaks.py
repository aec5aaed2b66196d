"""Columns that alone predict the target are named, and no others."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn import datasets

from distrain.prep.features.inference.infer import infer_features
from distrain.prep.features.inference.user_choices import UserChoices
from distrain.storage.inputs import list_inputs

ROWS = 1_000


def inferred(rows, place, target="target"):
    pq.write_table(pa.Table.from_pandas(rows, preserve_index=False), place / "rows.parquet")
    return infer_features(list_inputs([str(place / "rows.parquet")]), UserChoices((target,)))


@pytest.fixture
def rows():
    draw = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "shop": draw.integers(0, 9, ROWS).astype(str),
            "price": draw.gamma(2.0, 10.0, ROWS),
            "hint": draw.normal(0, 1, ROWS),
        }
    )


@pytest.mark.parametrize(
    ("classes", "revealing"),
    [
        (2, lambda target, draw: target * 3.0 - 1),
        (2, lambda target, draw: -target - draw.random(ROWS) / 2),
        (2, lambda target, draw: np.where(target == 1, draw.random(ROWS), np.nan)),
        (2, lambda target, draw: np.char.add("code-", (target * 7).astype(str))),
        (5, lambda target, draw: np.char.add("code-", (target * 7).astype(str))),
        (5, lambda target, draw: 10 * target + draw.integers(0, 3, ROWS)),
        (None, lambda target, draw: 100 - target * 2.54),
    ],
)
def test_a_function_of_the_target_is_named_whatever_its_form(tmp_path, rows, classes, revealing):
    draw = np.random.default_rng(1)
    target = rows.hint if classes is None else draw.integers(0, classes, ROWS)
    rows["target"] = target + (draw.normal(0, 0.5, ROWS) if classes is None else 0)
    assert inferred(rows, tmp_path).revealing == ()
    rows["known_later"] = revealing(rows.target.to_numpy(), draw)
    found = inferred(rows, tmp_path)
    assert found.revealing == ("known_later",)
    (warning,) = (one for one in found.warnings if "known_later" in one)
    assert warning.startswith("known_later alone predicts")
    before, _, _ = found.text.partition("\n  known_later:")
    assert "Warning" in before.rpartition("\n  hint:")[2]


@pytest.mark.parametrize("name", ["breast_cancer", "diabetes", "digits", "iris", "wine"])
def test_good_features_are_not_named(tmp_path, name):
    rows = getattr(datasets, f"load_{name}")(as_frame=True).frame
    assert inferred(rows, tmp_path).revealing == ()
