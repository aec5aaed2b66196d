"""How tests forbid waits for a GPU."""

import warnings

import pytest
import torch
from devices import no_waiting

NOTICE = "Synchronization debug mode is a prototype feature and does not yet detect all"


@pytest.mark.parametrize("raises", [False, True])
def test_waits_are_forbidden_inside_alone(raises, monkeypatch):
    modes = []

    def set_mode(mode):
        modes.append(mode)
        if mode == "error":
            warnings.warn(NOTICE, stacklevel=1)  # as torch does, no error in these tests
            if raises:
                raise UserWarning(NOTICE)  # with other filters

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", set_mode)
    inside = False
    try:
        with no_waiting("cuda"):
            inside = modes == ["error"]
    except UserWarning:
        assert raises
    assert inside != raises
    assert modes == ["error", "default"]
