"""The folder or URL in which a run's checkpoints lie side by side."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Entry:
    """A whole checkpoint.

    Attributes:
        name: Of its folder, such as `step-0000000500-a3`.
        url: Of its folder, or its path.
        step: Steps of training that it holds.
        attempt: The attempt of the job that wrote it.
        values: The JSON values that were saved with it.
        size_bytes: Of all its files.
        auc: Of the validation rows at this step, if they were scored.
    """

    name: str
    url: str
    step: int
    attempt: int
    values: Mapping[str, Any]
    size_bytes: int
    auc: float | None = None


class CheckpointPlace:
    """Where checkpoints lie: a local folder, or a URL of any filesystem that fsspec knows.

    Nothing is created until the first one is written. It may be sent to another process.

    Args:
        url: A local path, or a URL such as `s3://bucket/run`.

    Attributes:
        url: As given.
        damaged: What the last `list` could not use, as people should read it: checkpoints whose
            manifest is damaged, and those that were never finished.
    """

    def __init__(self, url: str):
        self.url = url
        self.damaged: list[str] = []

    def list(self) -> list[Entry]:
        """The whole checkpoints, in the order in which one would go on from them.

        Those of the latest attempt come first, and among them the one of the latest step: when an
        attempt had to go back, say because the newest checkpoint was damaged, what it wrote since
        is the history that counts, although an earlier attempt may have got further.

        Only manifests are read: files that are missing or damaged show when it is loaded.

        Raises:
            DataError: The place could not be looked at. One that does not exist is empty.
        """
        raise NotImplementedError

    def read_manifest(self, name: str) -> dict[str, Any]:
        """What a checkpoint's manifest says.

        Raises:
            DataError: There is none, or it is damaged.
        """
        raise NotImplementedError
