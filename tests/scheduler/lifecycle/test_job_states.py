"""The drawn states are the states."""

from distrain.jobs import states
from distrain.jobs.states import TRANSITIONS, InvalidTransition, JobState


def drawn_moves(text):
    lines = [line.split(" ──▶ ") for line in text.splitlines() if " ──▶ " in line]
    moves = {JobState[old]: {JobState[new] for new in rest.split(" | ")} for old, rest in lines}
    return {state: moves.get(state, set()) for state in JobState}


def test_the_drawing_is_the_table():
    assert drawn_moves(states.__doc__) == {old: set(new) for old, new in TRANSITIONS.items()}


def test_the_final_states_are_those_without_a_move():
    assert {state for state in JobState if state.is_final} == {
        state for state, moves in TRANSITIONS.items() if not moves
    }


def test_every_state_can_be_reached_and_left_for_an_end():
    def reachable(state):
        found, new = set(), {state}
        while new:
            found |= new
            new = {after for before in new for after in TRANSITIONS[before]} - found
        return found

    assert reachable(JobState.PENDING) == set(JobState)
    assert all(any(s.is_final for s in reachable(state)) for state in JobState)


def test_a_forbidden_move_names_the_moves_so_far(wording):
    wording(InvalidTransition("a", JobState.FAILED, JobState.RUNNING, ["pending -> failed"]))
