"""The models of a job spec: functions that build a `Blueprint`, named by the model's `kind`."""

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import get_type_hints

from distrain.models.blueprint import Blueprint
from distrain.models.custom import custom

MakeModel = Callable[..., Blueprint]


def _makers() -> dict[str, MakeModel]:
    """Return the public functions of this folder's modules that return a `Blueprint`, by name."""
    modules = [
        import_module(f"{__name__}.{module_info.name}") for module_info in iter_modules(__path__)
    ]
    return {
        name: make
        for module in modules
        for name, make in vars(module).items()
        if not name.startswith("_")
        and getattr(make, "__module__", "") == module.__name__
        and callable(make)
        and get_type_hints(make).get("return") is Blueprint
    }


MODELS: dict[str, MakeModel] = {"custom": custom, **_makers()}
"""The models by `kind`. Each accepts a `ModelContext` and its section of the spec."""
