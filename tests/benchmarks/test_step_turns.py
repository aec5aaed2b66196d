"""Contenders that fail, and how large the tables of a comparison are."""

import pytest

from benchmarks.step_bench.cases import MACHINE, OURS, Entry
from benchmarks.step_bench.contender import Setup
from benchmarks.step_bench.turns import Failed, measure, of_each

ROUNDS = 3


class Ranks:
    """Answers so many times, then fails."""

    def __init__(self, name, answers=99):
        self.entry = Entry(name, name, Setup("mlp", 16))
        self._left, self.begun = answers, True

    def ask(self, **_):
        self._left -= 1

    def answers(self):
        if self._left < 0:
            raise Failed(f"{self.entry.name} failed:\nout of memory")
        return [{"step_s": 0.5, "cpu_s": 0.5, "phases_s": {}, "host_syncs": 0}]


@pytest.mark.parametrize("answers", [0, 1, 2, ROUNDS, ROUNDS + 1])
def test_a_contender_that_fails_costs_its_own_figures_alone(answers, capsys):
    bad, contenders = Ranks("bad", answers), [Ranks(OURS), Ranks(MACHINE)]
    contenders.insert(answers % 3, bad)
    measured = measure("some", 8192, contenders, ROUNDS)
    assert {each.entry.name for each in measured} == {OURS, MACHINE}
    assert [len(each.step_s) for each in measured] == [ROUNDS] * 2
    assert all(each.counts for each in measured)
    assert "Left out: bad failed:\nout of memory" in capsys.readouterr().err
    assert bad not in contenders


def test_nothing_is_judged_without_the_machines_rates():
    with pytest.raises(SystemExit, match="out of memory"):
        of_each([Ranks(OURS), Ranks(MACHINE, -1)], Ranks.answers)
