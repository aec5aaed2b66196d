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
        description="Of retrieval: sampled softmax, or BPR, the mean over pairs of an item and "
        "another."
    ),
]
LogQ = Annotated[
    Literal["none", "batch", "stream"],
    Field(
        description="The softmax's correction for popular items, as counted in the step's rows of "
        "all ranks (`batch`) or in all rows so far (`stream`)."
    ),
]
Negatives = Annotated[
    Literal["batch", "uniform", "popularity"],
    Field(
        description="What the softmax and BPR compare a row's item with: the items of the step's "
        "rows (`batch`), or items that are drawn by seed and step, the same on any number of "
        "ranks. `popularity`: by Zipf's law of the ids, which `distrain prep` gives in the order "
        "of falling counts; the softmax corrects for that.",
    ),
]
NumNegatives = Annotated[
    PositiveInt, Field(description="Items that are drawn for each row; all rows share them.")
]


class CrossSpec(Section):
    """A hashed cross: the ids of several columns are hashed together to one of `num_bins` bins."""

    columns: tuple[str, ...] = Field(description="Categorical columns.", min_length=2)
    num_bins: PositiveInt = Field(10_000, description="Rows of the cross's table.")


class MlpSpec(Section):
    """A multi-layer perceptron over embeddings and continuous columns."""

    kind: Literal["mlp"] = Field("mlp", description="The model's name.")
    embedding_dim: WidthOrOwn = 16
    hidden: Widths = Field((128, 128, 128), description="Widths of the hidden layers.")
    dropout: HiddenDropout = 0.0
    number_pieces: Pieces = 0
    tasks: Tasks = Field({})
    sharing: Sharing = None


class TabularSpec(Section):
    """fastai's TabularModel: embeddings and continuous columns, all layers with batch norm."""

    kind: Literal["tabular"] = Field("tabular", description="The model's name.")
    embedding_dim: WidthOrOwn = None
    hidden: Widths = Field((512, 256), description="Widths of the hidden layers.")
    dropout: HiddenDropout = 0.0
    embedding_dropout: Dropout = Field(0.0, description="On the embeddings.")
    outputs: Literal[1, 2] = Field(
        2, description="2: two logits and cross entropy, as fastai; 1: one logit."
    )
    number_pieces: Pieces = 0
    tasks: Tasks = Field({})
    sharing: Sharing = None


class DlrmSpec(Section):
    """DLRM: bottom MLP, pairwise dot interaction, top MLP."""

    kind: Literal["dlrm"] = Field("dlrm", description="The model's name.")
    embedding_dim: Width = 16
    bottom: Widths = Field((128, 64), description="Layer widths over the continuous columns.")
    top: Widths = Field((64, 128, 256), description="Layer widths over the interactions.")
    number_pieces: Pieces = 0
    tasks: Tasks = Field({})
    sharing: Sharing = None


class DlrmCrossSpec(Section):
    """DLRM beside a wide part: a linear model of hashed crosses."""

    kind: Literal["dlrm_cross"] = Field("dlrm_cross", description="The model's name.")
    embedding_dim: Width = 16
    bottom: Widths = Field((128, 64), description="Layer widths over the continuous columns.")
    top: Widths = Field((64, 128, 256), description="Layer widths over the interactions.")
    crosses: tuple[CrossSpec, ...] = Field(description="The wide part's columns.", min_length=1)
    tasks: Tasks = Field({})
    sharing: Sharing = None


class _CrossLayersSpec(Section):
    kind: str
    embedding_dim: WidthOrOwn = 16
    cross_depth: Depth = Field(3, description="Cross layers.")
    hidden: Widths = Field((128, 128), description="Widths of the deep part's layers.")
    structure: Structure = "parallel"
    dropout: HiddenDropout = 0.0
    number_pieces: Pieces = 0
    tasks: Tasks = Field({})
    sharing: Sharing = None


class DcnSpec(_CrossLayersSpec):
    """Deep and cross network (version 1): vector crosses beside or below an MLP."""

    kind: Literal["dcn"] = Field("dcn", description="The model's name.")


class DcnV2Spec(_CrossLayersSpec):
    """Deep and cross network, version 2: crosses with a matrix, which may have a low rank."""

    kind: Literal["dcn_v2"] = Field("dcn_v2", description="The model's name.")
    low_rank: PositiveInt | None = Field(
        None, description="Rank of each cross layer's matrix; null: a full one."
    )
    structure: Structure = "stacked"


class GdcnSpec(_CrossLayersSpec):
    """Gated deep and cross network: DCN-v2 with a gate in each cross layer."""

    kind: Literal["gdcn"] = Field("gdcn", description="The model's name.")


class DeepFmSpec(Section):
    """DeepFM: a factorisation machine and an MLP over the same embeddings."""

    kind: Literal["deepfm"] = Field("deepfm", description="The model's name.")
    embedding_dim: Width = 16
    hidden: Widths = Field((128, 128), description="Widths of the deep part's layers.")
    dropout: HiddenDropout = 0.0
    number_pieces: Pieces = 0
    tasks: Tasks = Field({})
    sharing: Sharing = None


class WideDeepSpec(Section):
    """Wide & Deep: a linear model of columns and hashed crosses, and an MLP."""

    kind: Literal["wide_deep"] = Field("wide_deep", description="The model's name.")
    embedding_dim: WidthOrOwn = 16
    hidden: Widths = Field((128, 128), description="Widths of the deep part's layers.")
    crosses: tuple[CrossSpec, ...] = Field((), description="The wide part's crosses.")
    dropout: HiddenDropout = 0.0
    number_pieces: Pieces = 0
    tasks: Tasks = Field({})
    sharing: Sharing = None


class TwoTowerSpec(Section):
    """Two towers: an MLP over the user's columns, one over the item's, their dot product."""

    kind: Literal["two_tower"] = Field("two_tower", description="The model's name.")
    embedding_dim: WidthOrOwn = 16
    tower: Widths = Field((64, 32), description="Layer widths of each tower.", min_length=1)
    task: Literal["binary", "retrieval"] = Field(
        "binary",
        description="`binary`: labels 0 and 1; `retrieval`: the item of each row with label 1 "
        "against the items of all ranks' other rows, but for those that its user is known to have.",
    )
    loss: RetrievalLoss = "softmax"
    temperature: Real = Field(1.0, gt=0, description="Logits are divided by it.")
    normalize: bool = Field(False, description="Whether both vectors get length 1.")
    log_q: LogQ = "none"
    negatives: Negatives = "batch"
    num_negatives: NumNegatives = 4


class NcfSpec(Section):
    """NeuMF: the product of a user's and an item's embedding, and an MLP over two further ones."""

    kind: Literal["ncf"] = Field("ncf", description="The model's name.")
    mf_dim: PositiveInt = Field(16, description="Width of the multiplied embeddings.")
    embedding_dim: PositiveInt = Field(16, description="Width of the MLP's embeddings.")
    hidden: Widths = Field((64, 32, 16), description="Widths of the MLP's layers.")
    tasks: Tasks = Field({})
    sharing: Sharing = None


MaxLength = Annotated[
    PositiveInt, Field(description="The most events of a row that are looked at, its newest ones.")
]
EventTargets = Annotated[
    dict[str, str],
    Field(
        description="For lists of ids of the events the row's column that is their target; of "
        "others it is the one of the list's domain."
    ),
]


class DinSpec(Section):
    """Deep interest network: attention weighs a row's events by the row's item, their target."""

    kind: Literal["din"] = Field("din", description="The model's name.")
    embedding_dim: Width = 16
    max_length: MaxLength = 50
    targets: EventTargets = Field({})
    attention: Widths = Field((80, 40), description="Widths of the layers that weigh events.")
    hidden: Widths = Field((200, 80), description="Widths of the hidden layers.")
    activation: Literal["dice", "relu", "sigmoid"] = Field(
        "dice", description="In all layers; `dice` has a batch norm in it."
    )
    tasks: Tasks = Field({})
    sharing: Sharing = None


class _EventLayersSpec(Section):
    kind: str
    embedding_dim: Width = 16
    max_length: MaxLength = 50
    targets: EventTargets = Field({})
    heads: PositiveInt = Field(1, description="Heads of each layer.")
    layers: Depth = Field(2, description="Transformer layers.")
    dropout: Dropout = Field(0.0, description="In the transformer layers.")


class _EventRankerSpec(_EventLayersSpec):
    hidden: Widths = Field((128,), description="Widths of the hidden layers.")
    tasks: Tasks = Field({})
    sharing: Sharing = None


class BstSpec(_EventRankerSpec):
    """Behavior sequence transformer: self-attention over a row's events and its item."""

    kind: Literal["bst"] = Field("bst", description="The model's name.")
    max_length: MaxLength = 20
    heads: PositiveInt = Field(2, description="Heads of each layer.")
    layers: Depth = Field(1, description="Transformer layers.")
    hidden: Widths = Field((256, 128), description="Widths of the hidden layers.")


class SasrecSpec(_EventRankerSpec):
    """SASRec as a ranker: causal self-attention over the events, then layers over the newest event.

    The layers also take the target, the row's item.
    """

    kind: Literal["sasrec"] = Field("sasrec", description="The model's name.")


class SasrecRetrievalSpec(_EventLayersSpec):
    """SASRec as a retriever: the dot product of the newest event's vector and an item's embedding.

    The events and the items have the same embedding table.
    """

    kind: Literal["sasrec_retrieval"] = Field("sasrec_retrieval", description="The model's name.")
    every_event: bool = Field(
        False,
        description="Whether each event of a row is an example, too: what the older ones say of "
        "it. For tables that have one row a user, not one an event.",
    )
    loss: RetrievalLoss = "softmax"
    temperature: Real = Field(1.0, gt=0, description="Logits are divided by it.")
    log_q: LogQ = "none"
    negatives: Negatives = "batch"
    num_negatives: NumNegatives = 4


class HstuSpec(_EventRankerSpec):
    """HSTU as a ranker: pointwise attention over the events, their times, and the row's item."""

    kind: Literal["hstu"] = Field("hstu", description="The model's name.")
    layers: Depth = Field(2, description="Units, one after another.")
    dropout: Dropout = Field(0.0, description="Before each unit's output layer.")


class CustomSpec(Section):
    """A model of your own, from a package that the cluster's operator allows."""

    kind: Literal["custom"] = Field("custom", description="The model's name.")
    function: str = Field(
        description="`package.module:function`; called with the schema and the options, returns a "
        "`Blueprint`.",
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
    """Where embedding rows are stored, in which type, and how much memory they may take."""

    may_differ = ("placement", "tables", "memory_gib", "cache_gib")

    placement: Literal["auto", Placement] = Field(
        "auto",
        description="`replicated`: every rank holds all rows; `row_wise`: a rank owns one of "
        "every num_ranks rows, by a hash; `host_cached`: rows lie in the host's memory, hot ones "
        "on the device; `auto` chooses among all but `host_cached`, as `distrain plan` shows.",
    )
    tables: dict[str, Placement] = Field(
        {}, description="Placements of single tables by column, which outrank `placement`."
    )
    combiner: Pooling = Field(
        "mean",
        description="How the embeddings of a row's n ids become one, in columns of lists: their "
        "sum, `mean` (sum / n) or `sqrtn` (sum / sqrt(n)); a row without ids gets zeros.",
    )
    combiners: dict[str, Pooling] = Field(
        {}, description="The same for single columns of lists, which outranks `combiner`."
    )
    init: Real | None = Field(
        None,
        ge=0,
        description="Initial values are uniform between minus and plus this; null: "
        "1 / sqrt(cardinality) of each table.",
    )
    inits: dict[str, Annotated[Real, Field(ge=0)]] = Field(
        {}, description="The same for tables of single columns, which outranks `init`."
    )
    dropout: Dropout = Field(
        0.0, description="The share of embedding values that training sets to 0, in every model."
    )
    storage: Literal["fp32", "bf16"] = Field("fp32", description="The form of stored weights.")
    memory_gib: Real | None = Field(
        None,
        gt=0,
        description="What a rank's tables and their optimizer state may take, in GiB; null: three "
        "quarters of the GPU's memory, or of a rank's share of the host's available memory.",
    )
    cache_gib: Real = Field(
        1.0,
        gt=0,
        description="Device memory for the weights of hot rows of host-cached tables, in GiB; the "
        "optimizer's state for them comes on top.",
    )
