"""The name of a target on screens and in reports."""

from pathlib import Path

import pytest

from distrain.jobs.target_names import LABEL, own_name, with_own_name


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ("target: price", "price"),
        ("target: {column: price, at_least: 4}", "price"),
        ("target: no", "no"),
        ("target: 007", "007"),
        ("columns: {}", LABEL),
        ("- a", LABEL),
        ("{", LABEL),
        (None, LABEL),
    ],
)
def test_the_name_is_that_of_the_features_document(
    tmp_path: Path, document: str | None, name: str
) -> None:
    if document is not None:
        (tmp_path / "workflow").mkdir()
        (tmp_path / "workflow" / "features.yaml").write_text(document)
    assert own_name(tmp_path) == name


def test_only_the_label_is_renamed_and_no_target_hides_another() -> None:
    targets = {LABEL: 1, "price": 2}
    assert list(with_own_name(targets, "bought").items()) == [("bought", 1), ("price", 2)]
    assert with_own_name(targets, "price") == targets
