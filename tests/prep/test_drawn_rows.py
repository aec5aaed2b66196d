"""`split: {by: random}`: a row's place alone decides whether it is drawn for validation."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distrain.launch.tables import TableRequest, job_of_table
from distrain.prep.features.inference.user_choices import UserChoices
from distrain.prep.parts import Part, drawn_parts, read_part, write_staged


@pytest.mark.parametrize("share", [0.001, 0.2, 0.5, 0.999])
def test_the_draw_does_not_depend_on_the_parts(tmp_path, share):
    draw = np.random.default_rng(0)
    rows = 1_000
    found = []
    for number in range(4):
        cuts = np.unique(draw.integers(1, rows, number * 7))
        parts = []
        for place in np.split(np.arange(rows), cuts):
            path = str(tmp_path / f"{number}-{place[0]}.arrow")
            table = pa.table({"place": place})
            with write_staged(path, table.schema) as writer:
                writer.write_table(table)
            parts.append(Part(path, (0,), len(place), "rows.csv"))
        train, valid = (
            [place for part in some for place in read_part(part, ["place"])["place"].to_pylist()]
            for some in drawn_parts(parts, share)
        )
        assert sorted(train + valid) == [*range(rows)]
        assert len(valid) == round(rows * share)
        found.append(valid)
    assert all(valid == found[0] for valid in found)
    assert 0 < np.mean(found[0]) < rows


@pytest.mark.parametrize("form", ["csv", "frame"])
def test_a_share_of_a_sorted_table_is_drawn_from_all_of_it(tmp_path, form):
    """Rows are in the order of the target, and of a time that is known only later."""
    rows = pd.DataFrame({"place": np.arange(500) / 7, "at": pd.date_range("2024", periods=500)})
    rows["bought"] = (rows.index >= 250).astype(int)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    source = rows if form == "frame" else tmp_path / "rows.csv"
    job = job_of_table(
        TableRequest(source, tmp_path / "kept", UserChoices(("bought",), valid=0.2)), print
    )
    train, valid = (
        pq.read_table(*job.document["data"][split])["place"].to_numpy()
        for split in ("train", "valid")
    )
    assert len(valid) == 100
    assert not np.isin(valid, train).any()
    assert 40 < (valid > np.median(train)).sum() < 60
