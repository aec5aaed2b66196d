"""Keys as other tools call them are answered with the field; unlike names with none."""

import pytest

from distrain.errors import SpecError
from distrain.jobs.spec import parse_spec


@pytest.mark.parametrize(
    ("section", "key", "meant"),
    [
        ("train", "learning_rate", "optimizer.lr"),
        ("train", "batch_size", "global_batch_size"),
        ("train", "num_epochs", "epochs"),
        ("train", "optimiser", "optimizer"),
        ("train", "warp", None),
        ("", "learning_rate", "train.optimizer.lr"),
        ("", "batch_size", "train.global_batch_size"),
    ],
)
def test_an_unknown_key_is_answered_with_the_field_that_is_meant(
    section: str, key: str, meant: str | None
) -> None:
    document = {"data": {"train": "t"}, "model": {"kind": "mlp"}}
    document |= {section: {key: 1}} if section else {key: 1}  # type: ignore[dict-item]
    with pytest.raises(SpecError) as refused:
        parse_spec(document)
    said = str(refused.value)
    assert ("did you mean" in said) == (meant is not None)
    assert meant is None or f"did you mean {meant!r}?" in said
