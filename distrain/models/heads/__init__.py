"""Tasks of a model: the last block of a network, its loss and its scores."""

from distrain.models.heads.members import MemberTask as MemberTask
from distrain.models.heads.multitask import ESMMTask as ESMMTask, MultiTask as MultiTask
from distrain.models.heads.retrieval import ItemRetrievalTask as ItemRetrievalTask
from distrain.models.heads.targets import Candidates as Candidates, Target as Target
from distrain.models.heads.tasks import (
    BinaryClassificationTask as BinaryClassificationTask,
    MulticlassTask as MulticlassTask,
    RegressionTask as RegressionTask,
    Task as Task,
)
from distrain.models.heads.towers import DotProductTask as DotProductTask
