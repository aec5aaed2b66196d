import pyarrow.parquet as pq
import pytest
from cache_tables import make_table


@pytest.fixture
def source(tmp_path):
    """Two files of 300 and 200 rows, row groups of 120."""
    folder = tmp_path / "source"
    folder.mkdir()
    table = make_table(500)
    pq.write_table(table[:300], folder / "part-0.parquet", row_group_size=120)
    pq.write_table(table[300:], folder / "part-1.parquet", row_group_size=120)
    return folder
