"""Keys as other tools call them are answered with the field; unlike names with none."""

import pytest

from distrain.errors import SpecError
from distrain.jobs.spec import JobSpec, parse_spec
from distrain.jobs.spec.explain import spec_field
from distrain.jobs.spec.models.kinds import MlpSpec


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


NAMES = sorted(
    {
        *(name for place in ("data", "train", "resources", "evaluate", "checkpoint", "embeddings")
          for name in JobSpec.model_fields[place].annotation.model_fields),  # type: ignore[union-attr]
        *MlpSpec.model_fields,
    }
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_suggested_field_takes_a_single_value(name: str) -> None:
    field = spec_field(name)
    if field is None:
        return
    document = {"data": {"train": "t"}, "model": {"kind": "mlp"}}
    said = ""
    try:
        parse_spec(document, [f"{field}=1"])
    except SpecError as error:  # another value may be needed, but no mapping of keys
        said = str(error)
    assert f"{field}: a mapping of keys is needed" not in said
    assert "unknown key" not in said


@pytest.mark.parametrize(
    ("name", "field"),
    [("optimizer", "train.optimizer.kind"), ("sharing", "model.sharing.kind"), ("kind", None)],
)
def test_a_section_is_suggested_with_its_first_field(name: str, field: str | None) -> None:
    assert spec_field(name) == field
