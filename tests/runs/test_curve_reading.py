"""Records that are new since a cursor."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from distrain.runs.curve_reading import NewRecords, read_new_records
from distrain.runs.run_folder import DescriptorReader


def read(path: Path, since: str | None, limit: int = 2**20) -> NewRecords:
    if not path.exists():
        return read_new_records(None, since, limit)
    file = DescriptorReader(os.open(path, os.O_RDONLY))
    try:
        return read_new_records(file, since, limit)
    finally:
        file.close()


actions = st.lists(st.integers(-6, 6).filter(bool), max_size=12)


@given(actions, st.integers(5, 200))
@settings(max_examples=30, deadline=None)
def test_a_reader_has_what_the_file_has_however_it_is_written(
    tmp_path_factory: pytest.TempPathFactory, actions: list[int], limit: int
) -> None:
    """Positive numbers append so many records; negative ones write the file anew without some."""
    path = tmp_path_factory.mktemp("run") / "metrics.jsonl"
    written: list[dict[str, int]] = []
    seen: list[object] = []
    cursor, number = None, 0
    for action in actions:
        if action > 0:
            new = [{"step": number + n} for n in range(action)]
            number += action
            written += new
            with path.open("a") as file:
                file.writelines(json.dumps(record) + "\n" for record in new)
        else:
            number += 1
            written = [*written[:action], {"step": number}]
            fresh = path.with_name("fresh")
            fresh.write_text("".join(json.dumps(record) + "\n" for record in written))
            fresh.replace(path)
        while True:
            found = read(path, cursor, limit)
            seen = [*([] if found.restart else seen), *found.records]
            cursor = found.cursor
            if not found.more:
                break
        assert seen == written


def test_half_a_line_waits_and_damaged_ones_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    first = read(path, None)
    assert (first.records, first.more) == ((), False)
    path.write_bytes(b'{"step": 1}\n{"step": 2')
    second = read(path, first.cursor)
    assert second.records == ({"step": 1},)
    assert not second.restart
    path.write_bytes(b'{"step": 1}\n{"step": 2}\nnonsense\n[1]\n')
    third = read(path, second.cursor)
    assert (third.records, third.damaged, third.restart) == (({"step": 2},), 2, False)


@pytest.mark.parametrize("cursor", ["", "x", "1.2", "-1.2.3", "1.2.3.4", "1." + "f" * 20 + ".1"])
def test_what_is_no_cursor_is_refused(tmp_path: Path, cursor: str) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b"{}\n")
    with pytest.raises(ValueError, match="no cursor"):
        read(tmp_path / "metrics.jsonl", cursor)
