"""The sections of models whose features gate, mask, attend to or multiply each other."""

from typing import Annotated, Literal

from pydantic import Field

from distrain.jobs.spec.fields import (
    Depth,
    Dropout,
    Pieces,
    PositiveInt,
    Real,
    Section,
    Width,
    WidthOrOwn,
    Widths,
)
from distrain.jobs.spec.tasks import Sharing, Tasks

Context = Annotated[
    tuple[str, ...],
    Field(
        description="The columns that control the gate of the first (`first_context`) or second "
        "(`second_context`) MLP; []: learnt parameters control it."
    ),
]


class MaskNetSpec(Section):
    """MaskNet: masks computed from a row's embeddings multiply the embeddings or hidden layers."""

    kind: Literal["masknet"] = Field("masknet", description="The model's name.")
    embedding_dim: WidthOrOwn = 16
    masks: Widths = Field(
        (64, 64, 64), description="The output width of each mask block.", min_length=1
    )
    reduction: Real = Field(
        1.0,
        gt=0,
        le=8,
        description="The hidden width of a mask, as a multiple of the width that it masks.",
    )
    structure: Literal["parallel", "serial"] = Field(
        "parallel", description="Whether the mask blocks are parallel or in series."
    )
    hidden: Widths = Field(
        (128, 128), description="The widths of the hidden layers after the mask blocks."
    )
    dropout: Dropout = Field(0.0, description="The dropout rate after each hidden layer.")
    number_pieces: Pieces = 0
    tasks: Tasks = Field({})
    sharing: Sharing = None


class AutoIntSpec(Section):
    """AutoInt: attention among the columns of a row, with an optional MLP beside it."""

    kind: Literal["autoint"] = Field("autoint", description="The model's name.")
    embedding_dim: Width = 16
    layers: Depth = Field(3, description="The number of attention layers.")
    heads: PositiveInt = Field(2, description="The number of attention heads of each layer.")
    width: PositiveInt = Field(64, description="The width of a layer's vectors, over all heads.")
    hidden: Widths = Field(
        (128, 128),
        description="The widths of the MLP's hidden layers; []: no MLP, as in the AutoInt paper.",
    )
    dropout: Dropout = Field(0.0, description="The dropout rate after each hidden layer.")
    tasks: Tasks = Field({})
    sharing: Sharing = None


class XDeepFmSpec(Section):
    """xDeepFM: a linear model, a compressed interaction network, and an MLP."""

    kind: Literal["xdeepfm"] = Field("xdeepfm", description="The model's name.")
    embedding_dim: Width = 16
    maps: Widths = Field(
        (32, 32), description="The number of feature maps of each interaction layer.", min_length=1
    )
    hidden: Widths = Field((128, 128), description="The widths of the MLP's hidden layers.")
    dropout: Dropout = Field(0.0, description="The dropout rate after each hidden layer.")
    tasks: Tasks = Field({})
    sharing: Sharing = None


class FinalMlpSpec(Section):
    """FinalMLP: two MLPs over gated features, fused by a bilinear form."""

    kind: Literal["finalmlp"] = Field("finalmlp", description="The model's name.")
    embedding_dim: WidthOrOwn = 16
    gates: Widths = Field((128,), description="The hidden widths of the gates of both MLPs.")
    first_context: Context = ()
    second_context: Context = ()
    first: Widths = Field(
        (128, 128), description="The layer widths of the first MLP.", min_length=1
    )
    second: Widths = Field((128,), description="The layer widths of the second MLP.", min_length=1)
    heads: PositiveInt = Field(
        2,
        description="The number of heads of the bilinear fusion; it must divide the last "
        "width of both MLPs.",
    )
    dropout: Dropout = Field(0.0, description="The dropout rate after each layer of both MLPs.")
    tasks: Tasks = Field({})
    sharing: Sharing = None
