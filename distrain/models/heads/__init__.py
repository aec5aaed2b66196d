"""What a model is trained for: the last block of a network, its loss and its scores."""

from distrain.models.heads.targets import (
    Target as Target,
    TargetKind as TargetKind,
    label_of as label_of,
    weight_of as weight_of,
)
from distrain.models.heads.tasks import (
    BinaryClassificationTask as BinaryClassificationTask,
    MulticlassTask as MulticlassTask,
    MultiTask as MultiTask,
    RegressionTask as RegressionTask,
    Task as Task,
)
from distrain.models.heads.towers import (
    DotProductTask as DotProductTask,
    ItemRetrievalTask as ItemRetrievalTask,
)
