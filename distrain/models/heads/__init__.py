"""What a model is trained for: the last block of a network, its loss and its scores."""

from distrain.models.heads.multitask import (
    ESMMTask as ESMMTask,
    MultiTask as MultiTask,
    name_by_task as name_by_task,
)
from distrain.models.heads.named import named_head as named_head, weigh as weigh
from distrain.models.heads.retrieval import (
    ItemRetrievalTask as ItemRetrievalTask,
    RetrievalLoss as RetrievalLoss,
)
from distrain.models.heads.targets import (
    Candidates as Candidates,
    Target as Target,
    label_of as label_of,
    output_names as output_names,
    weight_of as weight_of,
)
from distrain.models.heads.tasks import (
    BinaryClassificationTask as BinaryClassificationTask,
    LabelTask as LabelTask,
    MulticlassTask as MulticlassTask,
    RegressionTask as RegressionTask,
    Task as Task,
)
from distrain.models.heads.towers import DotProductTask as DotProductTask
