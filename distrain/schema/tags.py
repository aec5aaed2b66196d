"""What a column is for, in Merlin's words."""

from enum import StrEnum


class Tags(StrEnum):
    """The tags that Merlin's tools write, and `weight`; any other lower-case word is allowed."""

    CATEGORICAL = "categorical"
    CONTINUOUS = "continuous"
    LIST = "list"
    SEQUENCE = "sequence"
    TEXT = "text"
    TOKENIZED = "tokenized"
    EMBEDDING = "embedding"
    TIME = "time"
    ID = "id"
    USER = "user"
    ITEM = "item"
    SESSION = "session"
    CONTEXT = "context"
    USER_ID = "user_id"
    ITEM_ID = "item_id"
    SESSION_ID = "session_id"
    TARGET = "target"
    BINARY = "binary"
    BINARY_CLASSIFICATION = "binary_classification"
    MULTI_CLASS_CLASSIFICATION = "multi_class_classification"
    REGRESSION = "regression"
    WEIGHT = "weight"
