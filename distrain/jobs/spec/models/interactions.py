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
    Field(description="Columns that set the stream's gates; none: they are learnt numbers."),
]


class MaskNetSpec(Section):
    """MaskNet: masks computed from a row's embeddings multiply the embeddings or hidden layers."""

    kind: Literal["masknet"] = Field("masknet", description="The model's name.")
    embedding_dim: WidthOrOwn = 16
    masks: Widths = Field((64, 64, 64), description="Outputs of each mask block.", min_length=1)
    reduction: Real = Field(
        1.0, gt=0, le=8, description="Width inside of a mask, as a share of what it masks."
    )
    structure: Literal["parallel", "serial"] = Field(
        "parallel", description="Whether mask blocks are beside each other or in a row."
    )
    hidden: Widths = Field((128, 128), description="Widths of the layers above them.")
    dropout: Dropout = Field(0.0, description="After each of these layers.")
    number_pieces: Pieces = 0
    tasks: Tasks = Field({})
    sharing: Sharing = None


class AutoIntSpec(Section):
    """AutoInt: attention among the columns of a row, with an optional MLP beside it."""

    kind: Literal["autoint"] = Field("autoint", description="The model's name.")
    embedding_dim: Width = 16
    layers: Depth = Field(3, description="Attention layers.")
    heads: PositiveInt = Field(2, description="Heads of each layer.")
    width: PositiveInt = Field(64, description="Width of a layer's vectors, all heads together.")
    hidden: Widths = Field((128, 128), description="Widths of the MLP; []: none, as AutoInt.")
    dropout: Dropout = Field(0.0, description="After each of the MLP's layers.")
    tasks: Tasks = Field({})
    sharing: Sharing = None


class XDeepFmSpec(Section):
    """xDeepFM: a linear model, a compressed interaction network, and an MLP."""

    kind: Literal["xdeepfm"] = Field("xdeepfm", description="The model's name.")
    embedding_dim: Width = 16
    maps: Widths = Field((32, 32), description="Maps of each interaction layer.", min_length=1)
    hidden: Widths = Field((128, 128), description="Widths of the MLP.")
    dropout: Dropout = Field(0.0, description="After each of its layers.")
    tasks: Tasks = Field({})
    sharing: Sharing = None


class FinalMlpSpec(Section):
    """FinalMLP: two MLPs over gated features, fused by a bilinear form."""

    kind: Literal["finalmlp"] = Field("finalmlp", description="The model's name.")
    embedding_dim: WidthOrOwn = 16
    gates: Widths = Field((128,), description="Hidden widths of both streams' gates.")
    first_context: Context = ()
    second_context: Context = ()
    first: Widths = Field((128, 128), description="Layer widths of one stream.", min_length=1)
    second: Widths = Field((128,), description="Layer widths of the other.", min_length=1)
    heads: PositiveInt = Field(
        2, description="Pieces of the bilinear form; they divide both streams' last widths."
    )
    dropout: Dropout = Field(0.0, description="After each of the streams' layers.")
    tasks: Tasks = Field({})
    sharing: Sharing = None
