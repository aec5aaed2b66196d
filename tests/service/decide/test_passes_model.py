"""Two reconcilers, an unreliable scheduler and users who change their minds, in any order."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from service_model import SERVICE, LeaseLost, World

from distrain.service.decide import Memory, Pass, Replaced
from distrain.service.decide.effects import Commit, Effect, Poll, Put, SendCancel, SendPriority
from distrain.service.decide.passes import Steps
from distrain.service.values import Phase

FATES = st.sampled_from(["arrives", "arrives", "arrives", "arrives", "lost", "answer lost", "late"])
WHICH = st.integers(0, 3)
_COMMANDS = (Poll, Put, SendCancel, SendPriority)


class Reconciler:
    """One process: it may be killed, or stand still, between any two effects."""

    def __init__(self, world: World, name: str):
        self.world, self.name = world, name
        self.births = 0
        self.generation: int | None = None
        self.steps: Steps | None = None
        self.one: Pass | None = None
        self.answer: object = None
        self.kill()

    def kill(self) -> None:
        """A new process takes its place; nothing but the world's own memory is left."""
        self.births += 1
        self.memory = Memory("east")
        self.generation = None
        self._end_pass()

    def step(self, fate: str) -> bool:
        """Carry out one effect; whether the pass goes on."""
        if self.steps is None and not self._begin():
            return False
        assert self.steps is not None
        assert self.one is not None
        try:
            effect: Effect = self.steps.send(self.answer)
            self.answer = self._do(effect, fate)
        except StopIteration:
            self._end_pass()
            return False
        except (LeaseLost, Replaced):
            self.kill()
            return False
        return True

    def whole_pass(self) -> None:
        """Until the pass has ended, and all commands arrive."""
        while self.step("arrives"):
            pass

    def _begin(self) -> bool:
        generation = self.world.take_lease(f"{self.name}.{self.births}")
        if generation is None:
            return False
        if generation != self.generation:
            self.memory = Memory("east")
        self.generation = generation
        self.one = Pass(self.memory, SERVICE, generation, self.world.now_s)
        self.steps = self.one.run()
        return True

    def _do(self, effect: Effect, fate: str) -> object:
        assert self.generation is not None
        owner = f"{self.name}.{self.births}"
        fate = fate if isinstance(effect, _COMMANDS) else "arrives"
        if isinstance(effect, Commit) and effect.changes == ():
            raise AssertionError("a transaction without changes")
        answer = self.world.do(effect, owner, self.generation, fate)
        if isinstance(effect, SendCancel) and effect.newer_generation:
            self.generation = self.world.generation
        return answer

    def _end_pass(self) -> None:
        self.steps, self.one, self.answer = None, None, None


class Service(RuleBasedStateMachine):
    """The rules are the moves of users, the network, the scheduler and the processes."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.two = [Reconciler(self.world, "a"), Reconciler(self.world, "b")]

    def _job(self, which: int) -> str | None:
        ids = sorted(self.world.rows)
        return ids[which % len(ids)] if ids else None

    def _there(self, which: int) -> str | None:
        ids = sorted(self.world.scheduler.jobs)
        return ids[which % len(ids)] if ids else None

    @rule(priority=st.integers(0, 2))
    def submit(self, priority: int) -> None:
        """At most four jobs, so that much happens to each."""
        if len(self.world.rows) < 4:
            self.world.submit(priority)

    @rule(which=WHICH)
    def cancel(self, which: int) -> None:
        """A user cancels."""
        if job_id := self._job(which):
            self.world.cancel(job_id)

    @rule(which=WHICH)
    def resume(self, which: int) -> None:
        """A user resumes."""
        if job_id := self._job(which):
            self.world.resume(job_id)

    @rule(which=WHICH, priority=st.integers(0, 2))
    def set_priority(self, which: int, priority: int) -> None:
        """A user changes the priority."""
        if job_id := self._job(which):
            self.world.set_priority(job_id, priority)

    @rule(who=st.integers(0, 1), fates=st.lists(FATES, min_size=1, max_size=6))
    def some_steps(self, who: int, fates: list[str]) -> None:
        """One process goes on for a while, then stands still."""
        for fate in fates:
            self.two[who].step(fate)

    @rule(who=st.integers(0, 1))
    def a_pass(self, who: int) -> None:
        """One process ends its pass, and then makes a whole one."""
        self.two[who].whole_pass()
        self.two[who].whole_pass()

    @rule(who=st.integers(0, 1))
    def kill(self, who: int) -> None:
        """One process is killed."""
        self.two[who].kill()

    @rule(seconds=st.sampled_from([1.0, 6.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        """With 20 s, leases run out."""
        self.world.now_s += seconds

    @rule(answers=st.booleans())
    def network(self, answers: bool) -> None:
        """The scheduler is cut off, or comes back."""
        self.world.answers = answers

    @rule(which=WHICH)
    def late_put(self, which: int) -> None:
        """A PUT arrives late, out of order."""
        if self.world.under_way:
            self.world.put(self.world.under_way.pop(which % len(self.world.under_way)))

    @rule(which=WHICH)
    def start(self, which: int) -> None:
        """The scheduler starts a job."""
        if job_id := self._there(which):
            self.world.start(job_id)

    @rule(which=WHICH)
    def restart(self, which: int) -> None:
        """A rank died: the scheduler starts another attempt."""
        if job_id := self._there(which):
            self.world.restart(job_id)

    @rule(which=WHICH, state=st.sampled_from(["succeeded", "failed"]))
    def end(self, which: int, state: str) -> None:
        """A job ends."""
        if job_id := self._there(which):
            self.world.end(job_id, state)

    @rule()
    def forget(self) -> None:
        """The scheduler forgets all jobs that have ended."""
        self.world.forget()

    @rule()
    def boot(self) -> None:
        """The scheduler is started anew."""
        self.world.boot()

    def teardown(self) -> None:
        """When the faults stop, every job ends, and nothing that is under way starts one again."""
        world, last = self.world, self.two[0]
        world.answers = True
        self.two[1].kill()
        world.now_s += 20
        for _ in range(40):
            last.whole_pass()
            world.now_s += 1
            for job_id in sorted(world.scheduler.jobs):
                world.start(job_id)
                world.end(job_id, "succeeded")
        left = [job for job in world.rows.values() if job.phase is not Phase.FINAL]
        assert not left, f"these never end: {left}"
        for order in world.under_way:
            world.put(order)
        live = [seen for seen in world.scheduler.jobs.values() if not seen.is_final]
        assert not live, f"these live on: {live}"


def _check(examples: int, steps: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Service,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_whatever_happens() -> None:
    _check(100, 40)


@pytest.mark.slow
def test_whatever_happens_for_long() -> None:
    _check(3000, 80)
