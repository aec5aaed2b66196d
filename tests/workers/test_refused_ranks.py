"""What a supervisor makes of errors before its rank is started."""

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from distrain.jobs.assignment import Assignment, World
from distrain.workers import supervisor
from distrain.workers.supervisor import SupervisorPlugin, supervise

RANK = Assignment("a", 1, World(), {}, "/runs/a")


def test_interfaces_that_cannot_be_listed_are_not_taken_for_a_place_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[dict[str, Any]] = []
    worker = SimpleNamespace(
        address="tcp://127.0.0.1:1",
        plugins={SupervisorPlugin.name: None},
        batched_send=sent.append,
    )
    monkeypatch.setattr(supervisor, "get_worker", lambda: worker)
    monkeypatch.setattr(
        supervisor, "choose_interface", Mock(side_effect=OSError("interfaces cannot be listed"))
    )
    with pytest.raises(OSError, match="cannot be listed"):  # which the coordinator reports
        asyncio.run(supervise(RANK.dumps()))
    assert sent == []
