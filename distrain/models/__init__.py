"""Networks and embedding tables: each model takes a batch and returns logits."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distrain.models.blueprint import Blueprint as Blueprint, TableFactory as TableFactory
    from distrain.models.build import build_model as build_model
    from distrain.models.click_model import ClickModel as ClickModel
    from distrain.models.inputs import Embeddings as Embeddings, InputBlock as InputBlock
    from distrain.models.saved_model import SavedModel as SavedModel, load_model as load_model

_MODULES = {
    "Blueprint": "distrain.models.blueprint",
    "ClickModel": "distrain.models.click_model",
    "Embeddings": "distrain.models.inputs",
    "InputBlock": "distrain.models.inputs",
    "SavedModel": "distrain.models.saved_model",
    "TableFactory": "distrain.models.blueprint",
    "build_model": "distrain.models.build",
    "load_model": "distrain.models.saved_model",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
