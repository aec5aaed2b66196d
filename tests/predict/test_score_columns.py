"""The names of the score columns of several targets."""

from wording import Wording

from distrain.errors import DataError
from distrain.models.heads.targets import Target
from distrain.predict.score_columns import score_names


def test_a_column_of_class_values_with_the_name_of_another_column_is_refused(
    wording: Wording,
) -> None:
    names = ("rating", "value_rating")
    targets = [Target(name, kind="multiclass", classes=3) for name in names]
    assert "class_value_rating" in score_names(targets, with_values=["value_rating"])
    wording.refused(DataError, lambda: score_names(targets, with_values=["rating"]))


def test_columns_of_class_values_have_their_plain_names_where_these_are_free() -> None:
    targets = [Target(name, kind="multiclass", classes=3) for name in ("rating", "colour")]
    names = score_names(targets, with_values=["rating", "colour"])
    assert {"class_value_rating", "class_value_colour"} < {*names}
    assert score_names(targets[:1], with_values=["rating"])[-1] == "class_value"
