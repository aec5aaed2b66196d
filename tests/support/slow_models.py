"""A model whose steps wait while a file is there, so that a test can disturb its training."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distrain.models import Blueprint, Embeddings, InputBlock
from distrain.models.blocks import MLPBlock
from distrain.models.heads import BinaryClassificationTask
from distrain.schema import Schema

STEP_S = 0.2


class SlowBlock(MLPBlock):
    """A perceptron that is slow while a file is there."""

    def __init__(self, widths: Sequence[int], while_there: Path):
        super().__init__(widths)
        self._file = while_there

    def forward(self, value: Any) -> Any:
        """What the perceptron gives, later."""
        if self._file.exists():
            time.sleep(STEP_S)
        return super().forward(value)


def slow_perceptron(schema: Schema, while_there: str) -> Blueprint:
    """The model that a spec names."""
    body = SlowBlock([16], Path(while_there))
    return Blueprint(InputBlock(schema, Embeddings(4)), body, BinaryClassificationTask())
