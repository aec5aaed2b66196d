"""Two reconcilers in a `World`, and all moves that users, networks, schedulers, processes make."""

import random
from collections.abc import Callable, Mapping
from contextlib import suppress

from service_model import SERVICE, Seat, World
from stepped import Stepped

from distrain.service.decisions.cluster_pass import ALL_AFTER_S, Pass
from distrain.service.decisions.cluster_state import Memory
from distrain.service.decisions.world import Refused
from distrain.service.values import Phase

MOST_JOBS = 3
_COMMANDS = ("put", "send")


class Reconciler:
    """One process: it may be killed, or stand still, between any two calls of a pass.

    Nothing keeps the other one from acting at the same time.
    """

    def __init__(self, world: World):
        self.world, self.seat = world, Seat(world)
        self.steps: Stepped | None = None
        self.kill()

    def kill(self) -> None:
        """A new process takes its place; nothing but the world's own memory is left."""
        if self.steps is not None:
            self.steps.kill()
        self.memory, self.steps = Memory("east"), None

    def step(self, fate: str = "arrives") -> str | None:
        """Make one call, with a fate if it is a command; its name, `None` at the pass's end."""
        if self.steps is None:
            one = (self.memory, SERVICE, self.world.now_s)
            self.steps = Stepped(self.seat, lambda world: Pass(world, *one).run())
        self.seat.fate = fate
        name = self.steps.step()
        if name is None:
            self.steps = None
        return name

    def to_a_command(self, fate: str) -> None:
        """Go on until a command is sent, and stand still behind it; or the pass ends."""
        while name := self.step(fate):
            if name in _COMMANDS:
                return

    def whole_pass(self) -> None:
        """Until the pass has ended, and all commands arrive."""
        while self.step():
            pass


class Story:
    """Two reconcilers, and the moves of `MOVES` at any moment."""

    def __init__(self, seed: int) -> None:
        self.world = World()
        self.two = [Reconciler(self.world), Reconciler(self.world)]
        self.draw = random.Random(seed)

    def some(self, of: Mapping[str, object]) -> str | None:
        """The id of one of some jobs."""
        return self.draw.choice(sorted(of)) if of else None

    def reconciler(self) -> Reconciler:
        """Mostly the first, so that it gets far."""
        return self.two[int(self.draw.random() < 0.2)]

    def submit(self) -> None:
        """A few jobs only, so that much happens to each."""
        if len(self.world.rows) < MOST_JOBS:
            self.world.submit(self.draw.randrange(6))

    def user(self, act: Callable[..., None], *words: object) -> None:
        """A user does something with a job."""
        if job_id := self.some(self.world.rows):
            act(job_id, *words)

    def scheduler(self, act: Callable[..., None], *words: object) -> None:
        """Something happens to a job at the scheduler."""
        if job_id := self.some(self.world.scheduler.jobs):
            act(job_id, *words)

    def steps(self) -> None:
        """One process goes on for a while, then stands still."""
        one = self.reconciler()
        for fate in self.draw.choices(FATES, k=self.draw.randint(1, 8)):
            one.step(fate)

    def passes(self) -> None:
        """One process ends its pass, and then makes a whole one."""
        one = self.reconciler()
        one.whole_pass()
        one.whole_pass()

    def late_command(self) -> None:
        """A PUT or an order arrives late, out of order."""
        if late := self.world.under_way:
            with suppress(Refused):
                late.pop(self.draw.randrange(len(late)))()

    def go_on(self, seconds: float) -> None:
        """Time passes."""
        self.world.now_s += seconds

    def silence(self) -> None:
        """A job ends while no reconciler asks, for so long that the scheduler forgets it."""
        self.scheduler(self.world.end, self.draw.choice(ENDS))
        self.go_on(ALL_AFTER_S + 1)
        self.world.forget()

    def network(self, answers: bool) -> None:
        """The scheduler is cut off, or comes back."""
        self.world.answers = answers

    def come_to_rest(self) -> None:
        """When the faults stop, every job ends, and nothing that is under way starts one again."""
        world, last = self.world, self.two[0]
        world.answers = True
        self.two[1].kill()
        for _ in range(25):
            last.whole_pass()
            world.now_s += 3  # more than a minute in all: some summaries are never written
            for job_id in sorted(world.scheduler.jobs):
                world.start(job_id)
                world.end(job_id, "succeeded")
                world.record(job_id)
        left = [job for job in world.rows.values() if job.phase is not Phase.FINAL]
        assert not left, f"these never end: {left}"
        for arrive in world.under_way:
            with suppress(Refused):
                arrive()
        live = [seen for seen in world.scheduler.jobs.values() if not seen.is_final]
        assert not live, f"these live on: {live}"


FATES = ("arrives", "arrives", "arrives", "lost", "answer lost", "late", "no poll")
ENDS = ("succeeded", "failed", "cancelled")
# How often a walk makes each move: faults are rare, or nothing ever gets far.
MOVES: tuple[tuple[int, Callable[[Story], None]], ...] = (
    (6, Story.submit),
    (5, lambda story: story.user(story.world.cancel)),
    (4, lambda story: story.user(story.world.resume)),
    (1, lambda story: story.user(story.world.set_priority, story.draw.randrange(6))),
    (10, Story.steps),
    (14, lambda story: story.reconciler().to_a_command(story.draw.choice(FATES))),
    (12, Story.passes),
    (2, lambda story: story.reconciler().kill()),
    (6, lambda story: story.go_on(story.draw.choice((1.0, 1.0, 6.0, 20.0)))),
    (1, lambda story: story.network(False)),
    (3, lambda story: story.network(True)),
    (3, Story.late_command),
    (8, lambda story: story.scheduler(story.world.start)),
    (8, lambda story: story.scheduler(story.world.record)),
    (2, lambda story: story.scheduler(story.world.restart)),
    (5, lambda story: story.scheduler(story.world.end, story.draw.choice(ENDS))),
    (2, lambda story: story.world.forget()),
    (1, Story.silence),
    (2, lambda story: story.world.boot()),
)


def walk(seed: int, moves: int) -> None:
    """One random story, to its rest."""
    story = Story(seed)
    weights, acts = zip(*MOVES, strict=True)
    for act in story.draw.choices(acts, weights, k=moves):
        act(story)
    story.come_to_rest()
