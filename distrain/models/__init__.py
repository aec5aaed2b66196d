"""Click models: each takes a batch and returns logits, and knows nothing of ranks."""

from distrain.models.blueprint import Blueprint as Blueprint, TableFactory as TableFactory
from distrain.models.build import blueprint_of as blueprint_of, build_model as build_model
from distrain.models.click import ClickModel as ClickModel
from distrain.models.custom import (
    check_function as check_function,
    function_named as function_named,
    handed_over as handed_over,
    is_importable as is_importable,
    name_of as name_of,
)
from distrain.models.draws import FIRST_VALUE_ID as FIRST_VALUE_ID
from distrain.models.export import (
    INPUTS_FILE as INPUTS_FILE,
    Form as Form,
    model_file as model_file,
    write_export as write_export,
    write_query as write_query,
)
from distrain.models.independence import rows_are_independent as rows_are_independent
from distrain.models.inputs import (
    Embeddings as Embeddings,
    InputBlock as InputBlock,
    infer_embedding_dim as infer_embedding_dim,
)
from distrain.models.quantised import (
    TableForm as TableForm,
    round_tables as round_tables,
)
from distrain.models.saved import (
    MODEL_FILE as MODEL_FILE,
    WEIGHTS_FILE as WEIGHTS_FILE,
    SavedModel as SavedModel,
    check_sizes as check_sizes,
    load_model as load_model,
    model_tensors as model_tensors,
    open_weights as open_weights,
    read_description as read_description,
    save_model as save_model,
    with_targets_then as with_targets_then,
)
from distrain.models.tensor_file import (
    SLAB_BYTES as SLAB_BYTES,
    Slabs as Slabs,
    TensorFile as TensorFile,
    bytes_of as bytes_of,
    dtype_name as dtype_name,
    dtype_of as dtype_of,
    header_of as header_of,
)
