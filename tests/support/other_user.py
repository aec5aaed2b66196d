"""What a user who is not root may not do, also where the tests are run by root."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

NOBODY = 65534


@contextlib.contextmanager
def unprivileged() -> Iterator[Path]:
    """A folder of one's own, while this process is a user to whom permissions apply."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if os.geteuid() != 0:
            yield folder
            return
        os.chown(folder, NOBODY, NOBODY)
        try:
            os.seteuid(NOBODY)
        except OSError as error:
            pytest.skip(f"this root may not become another user: {error}")
        try:
            yield folder
        finally:
            os.seteuid(0)
