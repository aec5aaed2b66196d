"""What a rank prints, within bounds."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrain.background import BackgroundWriter
from distrain.runs.logs import read_log
from distrain.worker.log_pump import TAIL_LINES, BoundedLog, RankLog

KEPT = 100


def kept(path: Path) -> tuple[bytes, int, bytes]:
    """What is there before the note, how much it says was left out, what is there after it."""
    text = path.read_bytes()
    note = re.search(rb"\n\[\.\.\. distrain left out ([\d,]+) bytes here \.\.\.\]\n", text)
    if note is None:
        return text, 0, b""
    return text[: note.start()], int(note[1].replace(b",", b"")), text[note.end() :]


@given(st.lists(st.integers(1, 350), max_size=20))
@settings(deadline=None, max_examples=60)
def test_the_beginning_and_the_end_of_whatever_is_printed_are_kept(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    path = tmp_path_factory.mktemp("log") / "rank-0.log"
    printed = b""
    log = BoundedLog(path, KEPT)
    for number, size in enumerate(sizes):
        data = bytes((number + i) % 26 + 97 for i in range(size))
        printed += data
        log.write(data)
        on_disk = sum(file.stat().st_size for file in path.parent.iterdir())
        assert on_disk <= 3 * KEPT
        seen = read_log(path)
        assert seen.startswith(printed[:KEPT])
        assert printed.endswith(seen[KEPT:])
        assert len(seen) >= min(len(printed), 2 * KEPT) or len(seen) > KEPT
    log.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    head, left_out, end = kept(path)
    if len(printed) <= 2 * KEPT and not left_out:
        assert head + end == printed
        return
    assert head == printed[:KEPT]
    assert printed.endswith(end)
    assert 0 < len(end) <= KEPT
    assert len(head) + left_out + len(end) == len(printed)


def test_the_last_words_are_few_whatever_is_printed(tmp_path: Path) -> None:
    log = RankLog(tmp_path / "rank-0.log", BackgroundWriter("log"))
    assert log.last_words == ""
    lines = [f"line {number} \N{CHECK MARK}\n" for number in range(20_000)]
    log.write("".join(lines).encode())
    assert log.last_words == "".join(lines[-TAIL_LINES:])
    log.write(b"x" * 10_000_000)
    assert set(log.last_words) == {"x"}
    assert len(log.last_words) < 100_000
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
