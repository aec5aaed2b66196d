"""A rank's process as its supervisor sees it."""

import asyncio
import signal
from pathlib import Path
from typing import Any

from distrain.coordinator.supervisor import LOG_TAIL_LINES, RankProcess, _last_lines
from distrain.spec import parse_spec
from distrain.train.assignment import Assignment
from distrain.world import World

SPEC = parse_spec({"data": {"train": "nowhere"}, "model": {"kind": "mlp"}}).model_dump(mode="json")


def test_a_rank_that_is_given_up_while_it_starts_does_not_live_on(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []

    async def story() -> int:
        process = RankProcess(Assignment("job", 1, World(), SPEC, str(tmp_path)), told.append)
        run = asyncio.create_task(process.run())
        await asyncio.sleep(0)  # it has begun to start the process, and has none yet
        assert process._process is None
        process.kill()
        return await run

    assert asyncio.run(story()) == -signal.SIGTERM
    assert [message["event"]["kind"] for message in told] == ["rank_exited"]


def test_the_last_words_of_a_log_are_few_whatever_its_length(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    assert _last_lines(path) == ""
    lines = [f"line {number} \N{CHECK MARK}\n" for number in range(20_000)]
    path.write_text("".join(lines))
    assert _last_lines(path) == "".join(lines[-LOG_TAIL_LINES:])
    path.write_text("short\nlog")
    assert _last_lines(path) == "short\nlog"
    path.write_text("x" * 10_000_000)
    assert set(_last_lines(path)) == {"x"}
    assert len(_last_lines(path)) < 100_000
