"""Runs a function that stands still behind each call of an object which it was given."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from distrain.errors import DistrainError


class _Killed(BaseException):
    """The function's process is gone."""


class _Calls:
    """Stands for an object: each call waits until it has been made elsewhere."""

    def __init__(self, stepped: "Stepped"):
        self._stepped = stepped

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args: self._stepped.called(name, args)


class Stepped:
    """One run of `function`, which gets what stands for `target`.

    Nothing runs but in `step`: a walk over steps of several functions is the same each time.
    """

    def __init__(self, target: object, function: Callable[[Any], None]):
        self._target = target
        self._calls: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._answers: SimpleQueue[Any] = SimpleQueue()
        self._answer: object = None
        self._thread = threading.Thread(target=self._run, args=(function,), daemon=True)

    def step(self) -> str | None:
        """Let it run to its next call and make that call; its name, or `None` at the end.

        Raises what the call or the function raises; after an error of the call, `kill` it. A
        `DistrainError` of the call is one of its answers: the function gets it.
        """
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._answers.put(self._answer)
        name, args = self._calls.get()
        if name:
            try:
                self._answer = getattr(self._target, name)(*args)
            except DistrainError as error:
                self._answer = error
            return name
        self._thread.join()
        if args is not None:
            raise args
        return None

    def kill(self) -> None:
        """End it behind the call where it stands, if it does."""
        if self._thread.is_alive():
            self._answers.put(_Killed())
            self._thread.join()

    def called(self, name: str, args: tuple[Any, ...]) -> Any:
        self._calls.put((name, args))
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _run(self, function: Callable[[Any], None]) -> None:
        error: Exception | None = None
        try:
            function(_Calls(self))
        except _Killed:
            return
        except Exception as caught:
            error = caught
        self._calls.put(("", error))
