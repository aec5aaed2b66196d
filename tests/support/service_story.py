"""Two reconcilers in a `World`, and all moves that users, networks, schedulers, processes make."""

import random
from collections.abc import Sequence

from service_model import SERVICE, LeaseLost, World

from distrain.service.decide import (
    Effect,
    Memory,
    Pass,
    Poll,
    Put,
    Replaced,
    Send,
)
from distrain.service.decide.passes import Steps
from distrain.service.values import Phase

MOST_JOBS = 3
_COMMANDS = (Put, Send)


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

    def step(self, fate: str = "arrives") -> bool:
        """Carry out one effect, with a fate if it is a command; whether the pass goes on."""
        if self.steps is None and not self._begin():
            return False
        assert self.steps is not None
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

    def to_a_command(self, fate: str) -> None:
        """Go on until a command is sent, and stand still behind it; or the pass ends."""
        while self.step(fate):
            if isinstance(self._last, _COMMANDS):
                return

    def whole_pass(self) -> None:
        """Until the pass has ended, and all commands arrive."""
        while self.step():
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
        self._last = effect
        owner = f"{self.name}.{self.births}"
        if not isinstance(effect, (*_COMMANDS, Poll)) or (
            isinstance(effect, Poll) and fate != "no poll"
        ):
            fate = "arrives"
        answer = self.world.do(effect, owner, self.generation, fate)
        if isinstance(effect, Send) and effect.order.newer_generation:
            self.generation = self.world.generation
        return answer

    def _end_pass(self) -> None:
        self.steps, self.one, self.answer = None, None, None


class Story:
    """The moves; each may be made at any moment."""

    def __init__(self) -> None:
        self.world = World()
        self.two = [Reconciler(self.world, "a"), Reconciler(self.world, "b")]

    def submit(self, which: int) -> None:
        """A few jobs only, so that much happens to each."""
        if len(self.world.rows) < MOST_JOBS:
            self.world.submit(which)

    def cancel(self, which: int) -> None:
        """A user cancels."""
        if job_id := self._job(which):
            self.world.cancel(job_id)

    def resume(self, which: int) -> None:
        """A user resumes."""
        if job_id := self._job(which):
            self.world.resume(job_id)

    def set_priority(self, which: int) -> None:
        """A user changes a priority."""
        if job_id := self._job(which):
            self.world.set_priority(job_id, which)

    def steps(self, who: int, fates: Sequence[str]) -> None:
        """One process goes on for a while, then stands still."""
        for fate in fates:
            self.two[who].step(fate)

    def a_command(self, who: int, fate: str) -> None:
        """One process goes on until it has sent a command."""
        self.two[who].to_a_command(fate)

    def a_pass(self, who: int) -> None:
        """One process ends its pass, and then makes a whole one."""
        self.two[who].whole_pass()
        self.two[who].whole_pass()

    def kill(self, who: int) -> None:
        """One process is killed."""
        self.two[who].kill()

    def time_passes(self, seconds: float) -> None:
        """With 20 s, leases run out."""
        self.world.now_s += seconds

    def network(self, answers: bool) -> None:
        """The scheduler is cut off, or comes back."""
        self.world.answers = answers

    def late_put(self, which: int) -> None:
        """A PUT arrives late, out of order."""
        if self.world.under_way:
            self.world.put(self.world.under_way.pop(which % len(self.world.under_way)))

    def start(self, which: int) -> None:
        """The scheduler starts a job."""
        if job_id := self._there(which):
            self.world.start(job_id)

    def restart(self, which: int) -> None:
        """A rank died: the scheduler starts another attempt."""
        if job_id := self._there(which):
            self.world.restart(job_id)

    def end(self, which: int, state: str) -> None:
        """A job ends."""
        if job_id := self._there(which):
            self.world.end(job_id, state)

    def forget(self) -> None:
        """The scheduler forgets all jobs that have ended."""
        self.world.forget()

    def boot(self) -> None:
        """The scheduler is started anew."""
        self.world.boot()

    def come_to_rest(self) -> None:
        """When the faults stop, every job ends, and nothing that is under way starts one again."""
        world, last = self.world, self.two[0]
        world.answers = True
        self.two[1].kill()
        if world.owner != f"{last.name}.{last.births}":
            world.now_s += 20
        for _ in range(25):
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

    def _job(self, which: int) -> str | None:
        ids = sorted(self.world.rows)
        return ids[which % len(ids)] if ids else None

    def _there(self, which: int) -> str | None:
        ids = sorted(self.world.scheduler.jobs)
        return ids[which % len(ids)] if ids else None


FATES = ("arrives", "arrives", "arrives", "lost", "answer lost", "late", "no poll")
ENDS = ("succeeded", "failed", "cancelled")
# How often a walk makes each move: faults are rare, or nothing ever gets far.
_WEIGHTS = {
    "submit": 6,
    "cancel": 5,
    "resume": 4,
    "set_priority": 1,
    "steps": 10,
    "a_command": 14,
    "a_pass": 12,
    "kill": 2,
    "time_passes": 6,
    "cut": 1,
    "join": 3,
    "late_put": 3,
    "start": 8,
    "restart": 2,
    "end": 5,
    "forget": 2,
    "boot": 2,
}


def walk(seed: int, moves: int) -> None:
    """One random story, to its rest."""
    rng = random.Random(seed)
    story = Story()
    names = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()), k=moves)
    for name in names:
        which, who = rng.randrange(6), int(rng.random() < 0.2)
        match name:
            case "steps":
                story.steps(who, rng.choices(FATES, k=rng.randint(1, 8)))
            case "a_command":
                story.a_command(who, rng.choice(FATES))
            case "a_pass":
                story.a_pass(who)
            case "kill":
                story.kill(who)
            case "time_passes":
                story.time_passes(rng.choice((1.0, 1.0, 6.0, 20.0)))
            case "cut" | "join":
                story.network(name == "join")
            case "end":
                story.end(which, rng.choice(ENDS))
            case "forget":
                story.forget()
            case "boot":
                story.boot()
            case _:
                getattr(story, name)(which)
    story.come_to_rest()
