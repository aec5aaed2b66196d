"""A scheduler that cannot show its jobs trains them all the same, and somebody is told."""

import pytest

from distrain.errors import ClusterError
from distrain.launch.reporting import LoggedProgress
from distrain.launch.run import show_jobs
from distrain.scheduler.http.attach import ensure_http_routes


class _Refusing:
    """A client whose scheduler has a distrain that knows no such plugin."""

    def register_plugin(self, plugin: object) -> None:
        raise ModuleNotFoundError("No module named 'distrain.scheduler.http.attach'")


def test_it_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "distrain"):
        show_jobs(_Refusing(), LoggedProgress())  # type: ignore[arg-type]
    (told,) = caplog.messages
    assert told.startswith("warning: ")
    assert "--preload distrain.preload" in told


def test_what_the_scheduler_says_itself_is_passed_on() -> None:
    class Empty:
        def register_plugin(self, plugin: object) -> None:
            raise ClusterError("the token is empty", hint="Set it.")

    with pytest.raises(ClusterError, match="the token is empty"):
        ensure_http_routes(Empty())
