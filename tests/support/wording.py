"""The wording of error messages: one golden file per folder of tests, reviewed when it changes.

A test of a refusal asserts on the class of the error and on its fields. Then it hands the error to
the fixture `wording`, which compares the text with `messages.txt` in the test's folder. `make test
ARGS="tests/FOLDER --update" JOBS=0` writes the file again; a person reviews the difference.
"""

import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

E = TypeVar("E", bound=BaseException)

_HEAD = re.compile(r"^## (.+)$", re.MULTILINE)
_NUMBERED = re.compile(r"\bTMP/([A-Za-z_]+)\d+\b")  # pytest's folders, numbered in a run's order
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}")


class GoldenMessages:
    """The messages of one folder of tests, by the name of the test that produced them.

    Args:
        file: The golden file.
        update: Whether to keep the messages of this run in place of those in the file.
    """

    def __init__(self, file: Path, update: bool):
        self.file = file
        self.update = update
        self.seen: dict[str, str] = {}
        parts = _HEAD.split(file.read_text())[1:] if file.exists() else []
        texts = [_NUMBERED.sub(r"TMP/\1", text.strip()) for text in parts[1::2]]
        self.expected = dict(zip(parts[::2], texts, strict=True))

    def check(self, name: str, text: str) -> None:
        """Compare a message with the golden file.

        Raises:
            AssertionError: It differs, or the file does not have it.
        """
        self.seen[name] = text
        if not self.update:
            hint = f"`{self.file}` differs: run the tests of its folder with --update, and review"
            assert self.expected.get(name) == text, hint

    def save(self) -> None:
        """With `update`, write the file: messages of tests that ran replace earlier ones.

        Messages of tests that did not run stay, unless the test is gone.
        """
        if not (self.update and self.seen):
            return
        ran = {_test_of(name) for name in self.seen}
        kept = {
            name: text
            for name, text in self.expected.items()
            if _test_of(name) not in ran and self._exists(name)
        }
        texts = sorted({**kept, **self.seen}.items())
        self.file.write_text("".join(f"## {name}\n{text}\n\n" for name, text in texts))

    def _exists(self, name: str) -> bool:
        file, _, test = _test_of(name).partition("::")
        path = self.file.parent / file
        function = test.partition("[")[0]
        return path.exists() and f"def {function}(" in path.read_text()


def _test_of(name: str) -> str:
    return re.sub(r" #\d+$", "", name)


class Wording:
    """Compares the messages of one test with the golden file of its folder.

    Args:
        golden: The messages of the folder.
        test: The name of the test, with its parameters.
        replaced: Texts that differ from run to run, and what to write for each.
    """

    def __init__(self, golden: GoldenMessages, test: str, replaced: dict[str, str]):
        self._golden = golden
        self._test = test
        self._replaced = replaced
        self._numbers: Counter[str] = Counter()

    def __call__(self, message: object, **replaced: str) -> None:
        """Compare one message; further ones of the same test are numbered.

        Args:
            message: An error, or its text.
            replaced: Names, and the texts of this run that each stands for, such as `port="8786"`.
        """
        text = str(message)
        for name, varying in replaced.items():
            text = text.replace(str(varying), name.upper())
        for varying, name in self._replaced.items():
            text = text.replace(varying, name)
        text = _NUMBERED.sub(r"TMP/\1", text)
        text = "\n".join(line.rstrip() for line in _ADDRESS.sub("0x...", text).splitlines())
        self._numbers[self._test] += 1
        number = self._numbers[self._test]
        self._golden.check(self._test + (f" #{number}" if number > 1 else ""), text.strip())

    def refused(self, error: type[E], *calls: Callable[[], object], **where: object) -> E:
        """Call functions that must each raise this class; compare fields of `where`, and the texts.

        Args:
            error: The class of the errors; one below it is another.
            calls: Functions without arguments.
            where: Names of places, such as `column`, and what each error must say of each.

        Returns:
            The last error.
        """
        for call in calls:
            with pytest.raises(error) as caught:
                call()
            assert type(caught.value) is error, repr(caught.value)
            found = getattr(caught.value, "where", {})
            assert {name: found.get(name) for name in where} == where
            self(caught.value)
        return caught.value


def is_alone() -> bool:
    """Whether this process runs all tests, so that it may write golden files."""
    return "PYTEST_XDIST_WORKER" not in os.environ
