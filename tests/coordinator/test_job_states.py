"""The drawn states are the states."""

import re

import pytest

from distrain.coordinator import states
from distrain.coordinator.states import TRANSITIONS, InvalidTransition, JobState

# Where a line's sign leads: up, down, left, right.
LEADS = {"─": "lr", "│": "ud", "└": "ur", "┘": "ul", "┬": "lrd", "▶": "l", "▼": "u"}
STEPS = {"u": (-1, 0, "d"), "d": (1, 0, "u"), "l": (0, -1, "r"), "r": (0, 1, "l")}


def names_in(line):
    for state in JobState:
        start = line.find(state.name)
        if start >= 0:
            yield state, start, start + len(state.name)


def drawn_moves(drawing):
    """Follow the lines from each state to the arrow heads that they end in."""
    lines = drawing.splitlines()
    moves = {state: set() for state in JobState}

    def sign(row, column):
        inside = 0 <= row < len(lines) and 0 <= column < len(lines[row])
        return lines[row][column] if inside else " "

    def targets(row, column):
        if sign(row, column) == "▶":  # all that stands behind it: A | B
            names = re.match(r" *(\w+(?: \| \w+)*)", lines[row][column + 1 :])[1]
            return {JobState[name] for name in names.split(" | ")}
        below = names_in(lines[row + 1])
        return {state for state, start, end in below if start <= column < end}

    def follow(row, column, seen):
        if (row, column) in seen:
            return set()
        seen.add((row, column))
        if sign(row, column) in "▶▼":
            return targets(row, column)
        found = set()
        for direction in LEADS[sign(row, column)]:
            down, right, back = STEPS[direction]
            if back in LEADS.get(sign(row + down, column + right), ""):
                found |= follow(row + down, column + right, seen)
        return found

    for row, line in enumerate(lines):
        for state, start, end in names_in(line):
            beginnings = [(row, end + 1)] if sign(row, end + 1) == "─" else []
            beginnings += [
                (row + 1, c) for c in range(start, end) if "u" in LEADS.get(sign(row + 1, c), "")
            ]
            for begin in beginnings:
                if sign(*begin) not in "▶▼":
                    moves[state] |= follow(*begin, set())
    return moves


def test_the_drawing_is_the_table():
    assert drawn_moves(states.__doc__) == {old: set(new) for old, new in TRANSITIONS.items()}


def test_the_final_states_are_those_without_a_move():
    assert {state for state in JobState if state.is_final} == {
        state for state, moves in TRANSITIONS.items() if not moves
    }


def test_every_state_can_be_reached_and_left_for_an_end():
    def reachable(state):
        return {state}.union(*(reachable(after) for after in TRANSITIONS[state]))

    assert reachable(JobState.PENDING) == set(JobState)
    assert all(any(s.is_final for s in reachable(state)) for state in JobState)


def test_a_forbidden_move_tells_its_story():
    with pytest.raises(InvalidTransition) as caught:
        raise InvalidTransition("a", JobState.FAILED, JobState.RUNNING, ["pending -> failed"])
    assert str(caught.value) == (
        "job a: failed -> running is not a move; so far: ['pending -> failed']"
    )
