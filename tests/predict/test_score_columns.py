"""The names of the score columns of several targets."""

from itertools import permutations

import pyarrow as pa
import pytest
import torch

from distrain.models.heads.targets import Target
from distrain.predict.score_columns import score_columns, score_names

CLASSES = {
    "rating": ["bad", "fair", "good"],
    "value_rating": ["low", "high", "none"],
    "value_rating_": ["a", "b", "c"],
}


@pytest.mark.parametrize("names", [*permutations(CLASSES)])
def test_a_column_of_class_values_replaces_no_column_of_another_target(
    names: tuple[str, ...],
) -> None:
    targets = [Target("f"), *(Target(name, kind="multiclass", classes=3) for name in names)]
    scores = torch.zeros(3, 1 + 3 * len(names))
    for place in range(len(names)):  # each target predicts another class in each row
        for row in range(3):
            scores[row, 1 + 3 * place + (row + place) % 3] = 1.0
    classes = {name: pa.array(values) for name, values in CLASSES.items()}
    columns = score_columns(targets, scores, classes)
    assert sorted(columns) == sorted(score_names(targets, with_values=classes))
    held = [column.to_pylist() for column in columns.values()]
    for place, name in enumerate(names):
        assert columns[f"class_{name}"].to_pylist() == [(row + place) % 3 for row in range(3)]
        assert held.count([CLASSES[name][(row + place) % 3] for row in range(3)]) == 1


def test_columns_of_class_values_have_their_plain_names_where_these_are_free() -> None:
    targets = [Target(name, kind="multiclass", classes=3) for name in ("rating", "colour")]
    names = score_names(targets, with_values=["rating", "colour"])
    assert {"class_value_rating", "class_value_colour"} < {*names}
    assert score_names(targets[:1], with_values=["rating"])[-1] == "class_value"
