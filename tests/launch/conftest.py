"""Prepared data for whole runs."""

import pytest
from small_jobs import write_prepared


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp("data") / "prepared")
