"""The drawn states are the states."""

from distrain.jobs import states
from distrain.jobs.states import TRANSITIONS, InvalidTransition, JobState


def drawn_moves(text):
    lines = [line.split(" ──▶ ") for line in text.splitlines() if " ──▶ " in line]
    moves = {JobState[old]: {JobState[new] for new in rest.split(" | ")} for old, rest in lines}
    return {state: moves.get(state, set()) for state in JobState}


def test_the_drawing_is_the_table():
    assert drawn_moves(states.__doc__) == {old: set(new) for old, new in TRANSITIONS.items()}


def test_a_forbidden_move_is_named(wording):
    wording(InvalidTransition("a", JobState.FAILED, JobState.RUNNING))
