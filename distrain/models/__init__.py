"""Click models: each takes a batch and returns logits, and knows nothing of ranks."""

from distrain.models.blueprint import Blueprint
from distrain.models.build import blueprint_of, build_model
from distrain.models.click import ClickModel
from distrain.models.inputs import Embeddings, InputBlock, infer_embedding_dim
from distrain.models.saved import SavedModel, load_model, save_model

__all__ = [
    "Blueprint",
    "ClickModel",
    "Embeddings",
    "InputBlock",
    "SavedModel",
    "blueprint_of",
    "build_model",
    "infer_embedding_dim",
    "load_model",
    "save_model",
]
