"""What a model is trained for: the last block of a network, its loss and its scores."""

from distrain.models.heads.binary import BinaryClassificationTask
from distrain.models.heads.dot_product import DotProductTask
from distrain.models.heads.multiclass import MulticlassTask
from distrain.models.heads.multitask import MultiTask
from distrain.models.heads.regression import RegressionTask
from distrain.models.heads.retrieval import ItemRetrievalTask
from distrain.models.heads.task import Task

__all__ = [
    "BinaryClassificationTask",
    "DotProductTask",
    "ItemRetrievalTask",
    "MultiTask",
    "MulticlassTask",
    "RegressionTask",
    "Task",
]
