"""Calls that must be refused, as a table: the class of the error, and its golden wording."""

from collections.abc import Callable

import pytest
from wording import Wording


def refuses(
    wording: Wording, error: type[Exception], *calls: Callable[[], object], **replaced: str
) -> None:
    """Check that each call raises this class, with the text that the golden file has.

    `replaced` names texts that vary from run to run, as for `wording`.
    """
    for call in calls:
        with pytest.raises(error) as caught:
            call()
        assert type(caught.value) is error, caught.value
        wording(caught.value, **replaced)
