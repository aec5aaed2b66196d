"""Models of the user's own: which functions may be imported, and what they must return."""

import sys

import pytest

from distrain.errors import ModelError, SpecError
from distrain.models import build_model
from distrain.models.custom import PACKAGES_VARIABLE, handed_over, name_of
from distrain.spec import CustomSpec

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


@pytest.mark.parametrize("allowed", ["", "our", "our_models.ctr", "others"])
def test_other_packages_are_not_imported(small_schema, package, monkeypatch, allowed):
    monkeypatch.setenv(PACKAGES_VARIABLE, allowed)
    with pytest.raises(SpecError, match="may not be imported from the package 'our_models'"):
        build_model(small_schema(), spec_of(package, "narrow"), seed=0)
    assert "our_models" not in sys.modules


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        ("missing", {}, "cannot be imported: module 'our_models.ctr' has no attribute 'missing'"),
        ("number", {}, "model.function is a int"),
        ("narrow", {"wide": 3}, "does not take these options: .*'wide'"),
    ],
)
def test_what_cannot_be_called_is_told(small_schema, package, function, options, message):
    with pytest.raises(SpecError, match=message):
        build_model(small_schema(), spec_of(package, function, **options), seed=0)


def test_a_module_that_is_not_there_is_told(small_schema, package):
    with pytest.raises(SpecError, match=r"No module named 'our_models\.none'"):
        build_model(small_schema(), spec_of("our_models.none", "narrow"), seed=0)


def test_it_must_return_a_blueprint(small_schema, package):
    with pytest.raises(ModelError, match="returned a str, not a Blueprint"):
        build_model(small_schema(), spec_of(package, "wrong"), seed=0)


def test_an_error_inside_the_function_is_shown_as_it_is(small_schema, package):
    with pytest.raises(TypeError, match="has no len"):
        build_model(small_schema(), spec_of(package, "broken"), seed=0)


def test_a_function_that_was_handed_over_needs_no_permission(small_schema, package, monkeypatch):
    from our_models.ctr import narrow  # type: ignore[import-not-found]

    monkeypatch.delenv(PACKAGES_VARIABLE)

    def here(schema):
        return narrow(schema, width=2)

    spec = CustomSpec(function=name_of(here))
    with handed_over(here):
        model = build_model(small_schema(), spec, seed=0)
    assert {column.dim for column in model.embeddings.columns} == {2}
    with pytest.raises(SpecError, match="may not be imported"):
        build_model(small_schema(), spec, seed=0)
