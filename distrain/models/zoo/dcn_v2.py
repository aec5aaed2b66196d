"""The deep and cross network, version 2."""

from collections.abc import Mapping

from distrain.embeddings.columns import Combiner
from distrain.models.blocks.cross import CrossBlock
from distrain.models.blueprint import Blueprint
from distrain.models.heads.binary import BinaryClassificationTask
from distrain.models.inputs import Embeddings, InputBlock
from distrain.models.zoo.dcn import crosses_and_mlp
from distrain.schema import Schema
from distrain.spec.models import DcnV2Spec


def dcn_v2(schema: Schema, spec: DcnV2Spec, combiners: Mapping[str, Combiner]) -> Blueprint:
    """Cross layers with a matrix (arXiv:2008.13535, eq. 1), of low rank if wanted (eq. 2).

    The MLP is above the crosses or beside them (section 3.2), and one logit above both.
    """
    inputs = InputBlock(schema, Embeddings(spec.embedding_dim, combiners=combiners))
    cross = CrossBlock(spec.cross_depth, "v2", spec.low_rank)
    body = crosses_and_mlp(cross, spec.hidden, spec.structure)
    return Blueprint(inputs, body, BinaryClassificationTask())
