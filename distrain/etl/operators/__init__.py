"""What can be done to a column, one operator per file."""

from distrain.etl.operators.base import FittedOperator, Operator
from distrain.etl.operators.categorify import Categorify, Counts
from distrain.etl.operators.clip import Clip
from distrain.etl.operators.fill_missing import FillMissing
from distrain.etl.operators.list_slice import ListSlice
from distrain.etl.operators.log_op import LogOp
from distrain.etl.operators.normalize import Moments, Normalize
from distrain.vocabulary import Vocabulary

__all__ = [
    "Categorify",
    "Clip",
    "Counts",
    "FillMissing",
    "FittedOperator",
    "ListSlice",
    "LogOp",
    "Moments",
    "Normalize",
    "Operator",
    "Vocabulary",
]
