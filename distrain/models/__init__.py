"""Click models: each takes a batch and returns logits, and knows nothing of ranks."""

from distrain.models.blueprint import Blueprint, TableFactory
from distrain.models.build import blueprint_of, build_model
from distrain.models.click import ClickModel
from distrain.models.custom import (
    check_function,
    function_named,
    handed_over,
    is_importable,
    name_of,
)
from distrain.models.export import Form, write_export
from distrain.models.independence import rows_are_independent
from distrain.models.inputs import Embeddings, InputBlock, infer_embedding_dim
from distrain.models.saved import (
    MODEL_FILE,
    WEIGHTS_FILE,
    SavedModel,
    check_sizes,
    load_model,
    model_tensors,
    open_weights,
    read_description,
    save_model,
)
from distrain.models.tensor_file import (
    SLAB_BYTES,
    Slabs,
    TensorFile,
    bytes_of,
    dtype_name,
    dtype_of,
    header_of,
)

__all__ = [
    "Blueprint",
    "ClickModel",
    "Embeddings",
    "Form",
    "InputBlock",
    "MODEL_FILE",
    "SLAB_BYTES",
    "SavedModel",
    "Slabs",
    "TableFactory",
    "TensorFile",
    "WEIGHTS_FILE",
    "blueprint_of",
    "build_model",
    "bytes_of",
    "check_function",
    "check_sizes",
    "dtype_name",
    "dtype_of",
    "function_named",
    "handed_over",
    "header_of",
    "infer_embedding_dim",
    "is_importable",
    "load_model",
    "model_tensors",
    "name_of",
    "open_weights",
    "read_description",
    "rows_are_independent",
    "save_model",
    "write_export",
]
