"""A small cluster in this process and generated Criteo lines."""

import random
from collections.abc import Callable

import pytest
from threads_as_cluster import client as client


@pytest.fixture(scope="session")
def make_lines() -> Callable[..., list[bytes]]:
    """Lines without their line ends; the same for the same arguments."""

    def make(num_lines: int, seed: int = 0, delimiter: str = "\t") -> list[bytes]:
        source = random.Random(seed)
        return [delimiter.join(_fields(source)).encode() for _ in range(num_lines)]

    return make


def _fields(source: random.Random) -> list[str]:
    numbers = ["" if source.random() < 0.2 else str(source.randint(-3, 500)) for _ in range(13)]
    categories = [
        "" if source.random() < 0.1 else f"{source.randint(0, 6 + 3 * i) * 2654435761 % 2**32:08x}"
        for i in range(26)
    ]
    return [str(int(source.random() < 0.3)), *numbers, *categories]
