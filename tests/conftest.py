"""What every test shares."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from real_postgres import Postgres

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture
def shared_data() -> Path:
    """The folder of real data beside the checkout; its licence forbids copies in the project."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"the real data sets are not here: no {SHARED_DATA.name}/ beside the checkout")
    return SHARED_DATA


@pytest.fixture(scope="session")
def postgres() -> "Iterator[Postgres]":
    """A PostgreSQL that runs; `new_database()` gives each test its own. Who kills one starts it."""
    real_postgres = pytest.importorskip("real_postgres", reason="psycopg is not installed")
    if reason := real_postgres.why_absent():
        pytest.skip(reason)
    with real_postgres.Postgres() as server:
        yield server
