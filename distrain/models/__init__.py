"""Click models: each takes a batch and returns logits, and knows nothing of ranks."""

from distrain.models.build import build_model, infer_embedding_dim
from distrain.models.click import ClickModel
from distrain.models.saved import SavedModel, load_model, save_model

__all__ = [
    "ClickModel",
    "SavedModel",
    "build_model",
    "infer_embedding_dim",
    "load_model",
    "save_model",
]
