"""Models of the user's own: which functions may be imported, and what they must return."""

import sys

import pytest

from distrain.errors import ModelError, SpecError
from distrain.jobs.spec import CustomSpec
from distrain.models import build_model
from distrain.models.custom import PACKAGES_VARIABLE, handed_over, name_of

MODULE = """
from distrain.models import Blueprint, Embeddings, InputBlock
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.heads.tasks import BinaryClassificationTask


def narrow(schema, width=4):
    inputs = InputBlock(schema, Embeddings(width))
    return Blueprint(inputs, MLPBlock([width]), BinaryClassificationTask())


def wrong(schema):
    return "a model"


def broken(schema):
    return len(5)


number = 5
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package of the user's."""
    (tmp_path / "our_models").mkdir()
    (tmp_path / "our_models" / "__init__.py").write_text("")
    (tmp_path / "our_models" / "ctr.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(PACKAGES_VARIABLE, "others, our_models")
    yield "our_models.ctr"
    for name in [name for name in sys.modules if name.startswith("our_models")]:
        del sys.modules[name]


def spec_of(package, function, **options):
    return CustomSpec(function=f"{package}:{function}", options=options)


def test_a_function_of_an_allowed_package_makes_the_model(small_schema, package):
    model = build_model(small_schema(), spec_of(package, "narrow", width=3), seed=0)
    assert {column.dim for column in model.embeddings.columns} == {3}
    assert model.dense.body.widths == (3,)


def test_other_packages_are_not_imported(small_schema, package, monkeypatch, wording):
    for allowed in ("", "our", "our_models.ctr", "others"):
        monkeypatch.setenv(PACKAGES_VARIABLE, allowed)
        build = lambda: build_model(small_schema(), spec_of(package, "narrow"), seed=0)  # noqa: E731
        wording.refused(SpecError, build)
        assert "our_models" not in sys.modules


def test_what_makes_no_model_is_refused(small_schema, package, wording):
    def building(function, package=package, **options):
        return lambda: build_model(small_schema(), spec_of(package, function, **options), seed=0)

    wording.refused(
        SpecError,
        building("missing"),
        building("number"),
        building("narrow", wide=3),
        building("narrow", "our_models.none"),
    )
    wording.refused(ModelError, building("wrong"))
    with pytest.raises(TypeError):  # an error of the user's function is shown as it is
        building("broken")()


def test_a_function_that_was_handed_over_needs_no_permission(small_schema, package, monkeypatch):
    from our_models.ctr import narrow  # type: ignore[import-not-found]

    monkeypatch.delenv(PACKAGES_VARIABLE)

    def here(schema):
        return narrow(schema, width=2)

    spec = CustomSpec(function=name_of(here))
    with handed_over(here):
        model = build_model(small_schema(), spec, seed=0)
    assert {column.dim for column in model.embeddings.columns} == {2}
    with pytest.raises(SpecError):
        build_model(small_schema(), spec, seed=0)
