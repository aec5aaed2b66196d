"""Two reconcilers, an unreliable scheduler and users who change their minds, in any order."""

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from service_story import ENDS, FATES, Story, walk

WHICH = st.integers(0, 5)
WHO = st.integers(0, 1)
FATE = st.sampled_from(FATES)


class Moves(RuleBasedStateMachine):
    """The moves of a story, as hypothesis makes them: it shortens those that fail."""

    def __init__(self) -> None:
        super().__init__()
        self.story = Story()

    @rule(name=st.sampled_from(["submit", "cancel", "resume", "set_priority"]), which=WHICH)
    def user(self, name: str, which: int) -> None:
        """Users."""
        getattr(self.story, name)(which)

    @rule(name=st.sampled_from(["start", "restart", "late_put"]), which=WHICH)
    def scheduler(self, name: str, which: int) -> None:
        """The scheduler gets on."""
        getattr(self.story, name)(which)

    @rule(which=WHICH, state=st.sampled_from(ENDS))
    def end(self, which: int, state: str) -> None:
        """A job ends."""
        self.story.end(which, state)

    @rule(who=WHO, fates=st.lists(FATE, min_size=1, max_size=8))
    def steps(self, who: int, fates: list[str]) -> None:
        """A process goes on for a while."""
        self.story.steps(who, fates)

    @rule(who=WHO, fate=FATE)
    def a_command(self, who: int, fate: str) -> None:
        """A process sends a command."""
        self.story.a_command(who, fate)

    @rule(who=WHO)
    def a_pass(self, who: int) -> None:
        """A process makes whole passes."""
        self.story.a_pass(who)

    @rule(seconds=st.sampled_from([1.0, 6.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        """Leases may run out."""
        self.story.time_passes(seconds)

    @rule(name=st.sampled_from(["kill 0", "kill 1", "cut", "join", "join", "forget", "boot"]))
    def fault(self, name: str) -> None:
        """What goes wrong, and right again."""
        match name.split():
            case ["kill", who]:
                self.story.kill(int(who))
            case ["cut"] | ["join"]:
                self.story.network(name == "join")
            case _:
                getattr(self.story, name)()

    def teardown(self) -> None:
        """All jobs end."""
        self.story.come_to_rest()


def _check(examples: int, steps: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Moves,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_whatever_happens() -> None:
    _check(40, 30)


def test_random_stories() -> None:
    for seed in range(300):
        walk(seed, 60)


@pytest.mark.slow
def test_whatever_happens_for_long() -> None:
    _check(60, 60)


@pytest.mark.slow
def test_many_random_stories() -> None:
    for seed in range(800):
        walk(seed, 120)


@pytest.mark.release
@pytest.mark.parametrize("first", range(0, 4000, 2000))
def test_thousands_of_random_stories(first: int) -> None:
    for seed in range(first, first + 2000):
        walk(seed, 120)
