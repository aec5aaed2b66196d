"""What a model is trained for: the last block of a network, its loss and its scores."""

from distrain.models.heads.tasks import (
    BinaryClassificationTask,
    MulticlassTask,
    MultiTask,
    RegressionTask,
    Task,
)
from distrain.models.heads.towers import DotProductTask, ItemRetrievalTask

__all__ = [
    "BinaryClassificationTask",
    "DotProductTask",
    "ItemRetrievalTask",
    "MultiTask",
    "MulticlassTask",
    "RegressionTask",
    "Task",
]
