"""What every test shares."""

from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture
def shared_data() -> Path:
    """The folder of real data beside the checkout; its licence forbids copies in the project."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"the real data sets are not here: no {SHARED_DATA.name}/ beside the checkout")
    return SHARED_DATA
