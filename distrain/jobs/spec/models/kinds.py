"""The sections `model`, a class for each kind with its own options, and `embeddings`.

`docs/spec.md` and the published JSON Schema show the field descriptions.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from distrain.jobs.spec.fields import (
    FUNCTION,
    Depth,
    Dropout,
    HiddenDropout,
    Pieces,
    Placement,
    Pooling,
    PositiveInt,
    Real,
    Section,
    Structure,
    Width,
    WidthOrOwn,
    Widths,
)
from distrain.jobs.spec.models.interactions import (
    AutoIntSpec,
    FinalMlpSpec,
    MaskNetSpec,
    XDeepFmSpec,
)
from distrain.jobs.spec.tasks import Sharing, Tasks

RetrievalLoss = Annotated[
    Literal["softmax", "bpr"],
    Field(
        description="The loss for retrieval: sampled softmax, or BPR, the mean over pairs of the "
        "row's item and another item."
    ),
]
LogQ = Annotated[
    Literal["none", "batch", "stream"],
    Field(
        description="The correction of the softmax for popular items. `batch`: by their frequency "
        "in the step's rows of all ranks. `stream`: by their frequency in all rows so far."
    ),
]
Negatives = Annotated[
    Literal["batch", "uniform", "popularity"],
    Field(
        description="The items that a row's item is compared with. `batch`: the items of the "
        "step's other rows. `uniform` and `popularity`: items drawn by seed and step, the same "
        "for any number of ranks. `popularity` draws by Zipf's law over the ids, which `distrain "
        "prep` assigns by falling frequency; the softmax corrects for it.",
    ),
]
NumNegatives = Annotated[
    PositiveInt,
    Field(
        description="The number of items drawn for each row, unless `negatives` is `batch`. All "
        "rows of a step are compared with all drawn items."
    ),
]


class CrossSpec(Section):
    """A hashed cross: the ids of several columns are hashed together to one of `num_bins` bins."""

    columns: tuple[str, ...] = Field(
        description="The categorical columns whose ids are combined.", min_length=2
    )
    num_bins: PositiveInt = Field(
        10_000, description="The number of bins, which are the rows of the cross's table."
    )


class MlpSpec(Section):
    """A multi-layer perceptron over embeddings and continuous columns."""

    kind: Literal["mlp"] = Field("mlp", description="The model's name.")
    embedding_dim: WidthOrOwn = 16
    hidden: Widths = Field((128, 128, 128), description="The widths of the MLP's hidden layers.")
    dropout: HiddenDropout = 0.0
    number_pieces: Pieces = 0
    members: PositiveInt = Field(
        1,
        description="The number of members, which share the layers and differ by factors of their "
        "inputs and outputs (a variant of TabM-mini, arXiv:2410.24210). The prediction is the mean "
        "of theirs. A step computes the layers once per member.",
    )
    tasks: Tasks = Field({})
    sharing: Sharing = None


class TabularSpec(Section):
    """fastai's TabularModel: embeddings and continuous columns, all layers with batch norm."""

    kind: Literal["tabular"] = Field("tabular", description="The model's name.")
    embedding_dim: WidthOrOwn = None
    hidden: Widths = Field((512, 256), description="The widths of the MLP's hidden layers.")
    dropout: HiddenDropout = 0.0
    embedding_dropout: Dropout = Field(0.0, description="The dropout rate of the embeddings.")
    outputs: Literal[1, 2] = Field(
        2, description="2: two logits with cross entropy, as in fastai. 1: one logit."
    )
    number_pieces: Pieces = 0
    tasks: Tasks = Field({})
    sharing: Sharing = None


class DlrmSpec(Section):
    """DLRM: bottom MLP, pairwise dot interaction, top MLP."""

    kind: Literal["dlrm"] = Field("dlrm", description="The model's name.")
    embedding_dim: Width = 16
    bottom: Widths = Field(
        (128, 64), description="The layer widths of the MLP over the continuous columns."
    )
    top: Widths = Field(
        (64, 128, 256), description="The layer widths of the MLP over the interactions."
    )
    number_pieces: Pieces = 0
    tasks: Tasks = Field({})
    sharing: Sharing = None


class DlrmCrossSpec(Section):
    """DLRM and a wide part, which is a linear model of hashed crosses."""

    kind: Literal["dlrm_cross"] = Field("dlrm_cross", description="The model's name.")
    embedding_dim: Width = 16
    bottom: Widths = Field(
        (128, 64), description="The layer widths of the MLP over the continuous columns."
    )
    top: Widths = Field(
        (64, 128, 256), description="The layer widths of the MLP over the interactions."
    )
    crosses: tuple[CrossSpec, ...] = Field(
        description="The hashed crosses of the wide part.", min_length=1
    )
    tasks: Tasks = Field({})
    sharing: Sharing = None


class _CrossLayersSpec(Section):
    kind: str
    embedding_dim: WidthOrOwn = 16
    cross_depth: Depth = Field(3, description="The number of cross layers.")
    hidden: Widths = Field((128, 128), description="The widths of the MLP's hidden layers.")
    structure: Structure = "parallel"
    dropout: HiddenDropout = 0.0
    number_pieces: Pieces = 0
    tasks: Tasks = Field({})
    sharing: Sharing = None


class DcnSpec(_CrossLayersSpec):
    """Deep and cross network, version 1: crosses with a vector, parallel to an MLP or before it."""

    kind: Literal["dcn"] = Field("dcn", description="The model's name.")


class DcnV2Spec(_CrossLayersSpec):
    """Deep and cross network, version 2: crosses with a matrix, which may have a low rank."""

    kind: Literal["dcn_v2"] = Field("dcn_v2", description="The model's name.")
    low_rank: PositiveInt | None = Field(
        None, description="The rank of each cross layer's matrix; null: full rank."
    )
    structure: Structure = "stacked"


class GdcnSpec(_CrossLayersSpec):
    """Gated deep and cross network: DCN-v2 with a gate in each cross layer."""

    kind: Literal["gdcn"] = Field("gdcn", description="The model's name.")


class DeepFmSpec(Section):
    """DeepFM: a factorisation machine and an MLP over the same embeddings."""

    kind: Literal["deepfm"] = Field("deepfm", description="The model's name.")
    embedding_dim: Width = 16
    hidden: Widths = Field((128, 128), description="The widths of the MLP's hidden layers.")
    dropout: HiddenDropout = 0.0
    number_pieces: Pieces = 0
    tasks: Tasks = Field({})
    sharing: Sharing = None


class WideDeepSpec(Section):
    """Wide & Deep: a linear model of columns and hashed crosses, and an MLP."""

    kind: Literal["wide_deep"] = Field("wide_deep", description="The model's name.")
    embedding_dim: WidthOrOwn = 16
    hidden: Widths = Field((128, 128), description="The widths of the MLP's hidden layers.")
    crosses: tuple[CrossSpec, ...] = Field((), description="The hashed crosses of the wide part.")
    dropout: HiddenDropout = 0.0
    number_pieces: Pieces = 0
    tasks: Tasks = Field({})
    sharing: Sharing = None


class TwoTowerSpec(Section):
    """Two towers: an MLP over the user's columns, one over the item's, their dot product."""

    kind: Literal["two_tower"] = Field("two_tower", description="The model's name.")
    embedding_dim: WidthOrOwn = 16
    tower: Widths = Field((64, 32), description="The layer widths of each tower.", min_length=1)
    task: Literal["binary", "retrieval"] = Field(
        "binary",
        description="`binary`: labels 0 and 1. `retrieval`: the item of each row with label 1 is "
        "compared with other items (see `negatives`), except items that the same user also has "
        "with label 1.",
    )
    loss: RetrievalLoss = "softmax"
    temperature: Real = Field(1.0, gt=0, description="The divisor of the logits.")
    normalize: bool = Field(
        False, description="Whether to scale the vectors of both towers to length 1."
    )
    log_q: LogQ = "none"
    negatives: Negatives = "batch"
    num_negatives: NumNegatives = 4


class NcfSpec(Section):
    """NeuMF: the product of a user's and an item's embedding, and an MLP over two further ones."""

    kind: Literal["ncf"] = Field("ncf", description="The model's name.")
    mf_dim: PositiveInt = Field(
        16, description="The dimension of the embeddings that are multiplied."
    )
    embedding_dim: PositiveInt = Field(
        16, description="The dimension of the embeddings that the MLP takes."
    )
    hidden: Widths = Field((64, 32, 16), description="The widths of the MLP's hidden layers.")
    tasks: Tasks = Field({})
    sharing: Sharing = None


MaxLength = Annotated[
    PositiveInt,
    Field(description="The maximum number of events of a row; the newest ones are used."),
]
EventTargets = Annotated[
    dict[str, str],
    Field(
        description="The target column of single event lists, by list column. Other lists use the "
        "column of the same domain."
    ),
]


class DinSpec(Section):
    """Deep interest network: attention weighs a row's events by the row's item."""

    kind: Literal["din"] = Field("din", description="The model's name.")
    embedding_dim: Width = 16
    max_length: MaxLength = 50
    targets: EventTargets = Field({})
    attention: Widths = Field(
        (80, 40),
        description="The widths of the hidden layers that compute the events' attention weights.",
    )
    hidden: Widths = Field((200, 80), description="The widths of the MLP's hidden layers.")
    activation: Literal["dice", "relu", "sigmoid"] = Field(
        "dice", description="The activation of all hidden layers; `dice` contains a batch norm."
    )
    tasks: Tasks = Field({})
    sharing: Sharing = None


class _EventLayersSpec(Section):
    kind: str
    embedding_dim: Width = 16
    max_length: MaxLength = 50
    targets: EventTargets = Field({})
    heads: PositiveInt = Field(1, description="The number of attention heads of each layer.")
    layers: Depth = Field(2, description="The number of transformer layers.")
    dropout: Dropout = Field(0.0, description="The dropout rate of the transformer layers.")


class _EventRankerSpec(_EventLayersSpec):
    hidden: Widths = Field(
        (128,), description="The widths of the hidden layers after the attention layers."
    )
    tasks: Tasks = Field({})
    sharing: Sharing = None


class BstSpec(_EventRankerSpec):
    """Behavior sequence transformer: self-attention over a row's events and its item."""

    kind: Literal["bst"] = Field("bst", description="The model's name.")
    max_length: MaxLength = 20
    heads: PositiveInt = Field(2, description="The number of attention heads of each layer.")
    layers: Depth = Field(1, description="The number of transformer layers.")
    hidden: Widths = Field(
        (256, 128), description="The widths of the hidden layers after the attention layers."
    )


class SasrecSpec(_EventRankerSpec):
    """SASRec as a ranker: causal self-attention over the events, then layers over the newest event.

    Those layers also get the embedding of the row's item.
    """

    kind: Literal["sasrec"] = Field("sasrec", description="The model's name.")


class SasrecRetrievalSpec(_EventLayersSpec):
    """SASRec as a retriever: the dot product of the newest event's vector and an item's embedding.

    The events and the items have the same embedding table.
    """

    kind: Literal["sasrec_retrieval"] = Field("sasrec_retrieval", description="The model's name.")
    every_event: bool = Field(
        False,
        description="Whether each event of a row is an additional example, predicted from the "
        "events before it. Use it for tables with one row per user, not for tables with one row "
        "per event.",
    )
    loss: RetrievalLoss = "softmax"
    temperature: Real = Field(1.0, gt=0, description="The divisor of the logits.")
    log_q: LogQ = "none"
    negatives: Negatives = "batch"
    num_negatives: NumNegatives = 4


class HstuSpec(_EventRankerSpec):
    """HSTU as a ranker: pointwise attention over the events, their times, and the row's item."""

    kind: Literal["hstu"] = Field("hstu", description="The model's name.")
    layers: Depth = Field(2, description="The number of HSTU layers.")
    dropout: Dropout = Field(
        0.0, description="The dropout rate before the output layer of each HSTU layer."
    )


class CustomSpec(Section):
    """Your own model, from a package that the cluster's operator allows."""

    kind: Literal["custom"] = Field("custom", description="The model's name.")
    function: str = Field(
        description="`package.module:function`. The function takes the schema and the options, "
        "and returns a `Blueprint`.",
        pattern=FUNCTION,
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Keyword arguments of the function."
    )


ModelSpec = Annotated[
    MlpSpec
    | TabularSpec
    | DlrmSpec
    | DlrmCrossSpec
    | DcnSpec
    | DcnV2Spec
    | DeepFmSpec
    | WideDeepSpec
    | TwoTowerSpec
    | NcfSpec
    | DinSpec
    | BstSpec
    | SasrecSpec
    | SasrecRetrievalSpec
    | HstuSpec
    | GdcnSpec
    | MaskNetSpec
    | AutoIntSpec
    | XDeepFmSpec
    | FinalMlpSpec
    | CustomSpec,
    Field(discriminator="kind"),
]


class EmbeddingsSpec(Section):
    """The embedding tables: placement, combiners, initial values, dropout, type and memory."""

    may_differ = ("placement", "tables", "memory_gib", "cache_gib")

    placement: Literal["auto", Placement] = Field(
        "auto",
        description="Where embedding rows are stored. `replicated`: every rank has all rows. "
        "`row_wise`: each row has one owner rank, chosen by a hash. `host_cached`: in host "
        "memory, with recently used rows in device memory. `auto`: `replicated` or `row_wise` for "
        "each table; `distrain plan` shows the choice.",
    )
    tables: dict[str, Placement] = Field(
        {}, description="The placement of single tables, by column; overrides `placement`."
    )
    combiner: Pooling = Field(
        "mean",
        description="How the embeddings of a list's n ids are combined: `sum`, `mean` (sum / n) "
        "or `sqrtn` (sum / sqrt(n)). An empty list gives zeros.",
    )
    combiners: dict[str, Pooling] = Field(
        {}, description="The combiner of single list columns; overrides `combiner`."
    )
    init: Real | None = Field(
        None,
        ge=0,
        description="Initial values are uniform between minus and plus this number; null: 1 / "
        "sqrt(cardinality) of each table.",
    )
    inits: dict[str, Annotated[Real, Field(ge=0)]] = Field(
        {}, description="The initial range of single tables, by column; overrides `init`."
    )
    dropout: Dropout = Field(
        0.0, description="The share of embedding values that training sets to 0, for every model."
    )
    storage: Literal["fp32", "bf16"] = Field("fp32", description="The type of the stored weights.")
    memory_gib: Real | None = Field(
        None,
        gt=0,
        description="The memory limit of a rank's tables and their optimizer state, in GiB. Null: "
        "three quarters of the GPU's memory, or of the rank's share of the host's available "
        "memory.",
    )
    cache_gib: Real = Field(
        1.0,
        gt=0,
        description="The device memory for recently used rows of host-cached tables, in GiB. Their "
        "optimizer state needs additional memory.",
    )
