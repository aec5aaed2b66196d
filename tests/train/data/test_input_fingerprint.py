"""Which difference of files ranks find out."""

from pathlib import Path

import pyarrow.parquet as pq
from small_jobs import draw_rows, make_spec, write_prepared

from distrain.train.data.inputs import check_inputs


def test_other_validation_files_are_other_inputs(tmp_path: Path) -> None:
    prepared = write_prepared(tmp_path)
    spec = make_spec(prepared)
    before = check_inputs(spec)
    assert check_inputs(spec).fingerprint == before.fingerprint
    pq.write_table(draw_rows(20, seed=1), prepared / "valid" / "part-1.parquet")
    after = check_inputs(spec)
    assert after.train.fingerprint == before.train.fingerprint
    assert len(after.fingerprint) == len(before.fingerprint)
    assert after.fingerprint != before.fingerprint
    alone = check_inputs(make_spec(prepared, "data.valid=null"))
    assert alone.fingerprint == before.train.fingerprint
