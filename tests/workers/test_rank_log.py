"""What a rank prints, within bounds."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from distrain.jobs.run_paths import log_end
from distrain.runs.log_bytes import gap_note, log_size, next_bytes, read_log
from distrain.storage.background import BackgroundWriter
from distrain.workers.rank_log import TAIL_LINES, BoundedLog, RankLogWriter

KEPT = 100


def bytes_by_number(path: Path) -> tuple[dict[int, int], tuple[int, bool]]:
    """Each byte that is kept, under its number, as a reader in small steps finds it; the extent."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        found: dict[int, int] = {}
        offset = 0
        while True:
            first, data = next_bytes(folder, path.name, offset, 64)
            assert first >= offset
            found.update(enumerate(data, first))
            if not data:
                return found, (log_size(folder, path.name), log_end(path).exists())
            offset = first + len(data)
    finally:
        os.close(folder)


def with_notes(found: dict[int, int], end: int) -> bytes:
    """The bytes that are kept, with a note in the place of the others."""
    whole, number = b"", 0
    for kept in (*sorted(found), end):
        whole += gap_note(kept - number) if kept > number else b""
        whole += bytes([found[kept]]) if kept < end else b""
        number = kept + 1
    return whole


def printed_bytes(sizes: list[int]) -> list[bytes]:
    return [bytes((n + i) % 26 + 97 for i in range(size)) for n, size in enumerate(sizes)]


@given(st.lists(st.integers(1, 350), max_size=20))
@settings(deadline=None, max_examples=30)
def test_every_byte_keeps_its_number_and_the_beginning_and_the_end_are_kept(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    path = tmp_path_factory.mktemp("log") / "rank-0.log"
    printed = b""
    log = BoundedLog(path, KEPT)
    for data in printed_bytes(sizes):
        printed += data
        log.write(data)
        assert sum(file.stat().st_size for file in path.parent.iterdir()) <= 3 * KEPT
        found, extent = bytes_by_number(path)
        assert all(printed[number] == byte for number, byte in found.items())
        assert extent == (len(printed), False)
        kept = [*range(min(KEPT, len(printed))), *range(max(0, len(printed) - KEPT), len(printed))]
        assert found.keys() >= set(kept)
    log.close()
    found, extent = bytes_by_number(path)
    assert extent == (len(printed), True)
    assert len(found) + log.left_out_bytes == len(printed)
    assert read_log(path) == with_notes(found, len(printed))


@given(st.lists(st.tuples(st.integers(1, 120), st.booleans()), max_size=25))
@settings(deadline=None, max_examples=30)
def test_bytes_that_a_full_disk_lost_are_gaps_and_change_no_other_numbers(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[int, bool]]
) -> None:
    path = tmp_path_factory.mktemp("log") / "rank-0.log"
    log = BoundedLog(path, KEPT)
    printed, lost = b"", set()
    data_of = printed_bytes([size for size, _ in writes])
    for data, (_, disk_is_full) in zip(data_of, writes, strict=True):
        if disk_is_full:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(BoundedLog, "_write", full)
                log.write(data)
            lost |= set(range(len(printed), len(printed) + len(data)))
        else:
            log.write(data)
        printed += data
    log.close()
    found, extent = bytes_by_number(path)
    assert all(printed[number] == byte for number, byte in found.items())
    assert not found.keys() & lost
    assert extent == (len(printed), True)
    assert len(found) + log.left_out_bytes == len(printed)
    assert read_log(path) == with_notes(found, len(printed))


def full(_: BoundedLog, __: memoryview) -> int:
    raise OSError("no space left on device")


def test_a_log_goes_on_where_a_killed_writer_left_it(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    for data in (b"a" * 150, b"b" * 30, b"c" * 130):
        log = BoundedLog(path, KEPT)
        log.write(data)
        log.close()
        log_end(path).unlink()  # as if it was never closed
    found, extent = bytes_by_number(path)
    assert bytes(found[number] for number in sorted(found)[-130:]) == b"c" * 130
    assert extent == (310, False)


def test_a_link_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("password")
    path = tmp_path / "logs" / "rank-0.log"
    path.parent.mkdir()
    path.symlink_to(tmp_path / "secret")
    assert read_log(path) == b""
    path.unlink()
    path.write_bytes(b"12345")
    path.with_name("rank-0.log.from-5").symlink_to(tmp_path / "secret")
    assert read_log(path) == b"12345"


def test_the_last_words_are_few_whatever_is_printed(tmp_path: Path) -> None:
    log = RankLogWriter(tmp_path / "rank-0.log", BackgroundWriter("log"))
    assert log.last_lines == ""
    lines = [f"line {number} \N{CHECK MARK}\n" for number in range(20_000)]
    log.write("".join(lines).encode())
    assert log.last_lines == "".join(lines[-TAIL_LINES:])
    log.write(b"x" * 10_000_000)
    assert set(log.last_lines) == {"x"}
    assert len(log.last_lines) < 100_000
    log.close()


def test_what_is_printed_on_request_is_not_among_the_last_words(tmp_path: Path) -> None:
    log = RankLogWriter(tmp_path / "rank-0.log", BackgroundWriter("log"))
    log.write(b"its own words\n")
    for number in range(2):
        before = log.num_bytes
        log.write(stacks := b"Thread 0x1: %d\n" % number * 40)
        assert log.printed_since(before).encode() == stacks
        log.forget_since(before)
    log.write(b"the end\n")
    assert log.last_lines == "its own words\nthe end\n"
    log.close()


def test_a_log_that_cannot_be_written_holds_up_nobody(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "rank-0.log"
    log = BoundedLog(path, KEPT)
    log.write(b"a" * KEPT)
    for file in path.parent.iterdir():
        file.unlink()
    path.parent.rmdir()
    log.write(b"b" * 50)
    log.write(b"c" * 500)
    assert log.left_out_bytes >= 550
    log.close()
    assert not path.parent.exists()
