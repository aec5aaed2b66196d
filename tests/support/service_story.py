"""Two reconcilers in a `World`, and all moves that users, networks, schedulers, processes make."""

import random
from collections.abc import Callable, Mapping

from service_model import SERVICE, LeaseLost, World

from distrain.service.decide.cluster_state import Memory
from distrain.service.decide.effects import Effect, Poll, Put, Send
from distrain.service.decide.passes import Pass, Replaced, Steps
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
    """Two reconcilers, and the moves of `MOVES` at any moment."""

    def __init__(self, seed: int) -> None:
        self.world = World()
        self.two = [Reconciler(self.world, "a"), Reconciler(self.world, "b")]
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

    def late_put(self) -> None:
        """A PUT arrives late, out of order."""
        if late := self.world.under_way:
            self.world.put(late.pop(self.draw.randrange(len(late))))

    def go_on(self, seconds: float) -> None:
        """With 20 s, leases run out."""
        self.world.now_s += seconds

    def network(self, answers: bool) -> None:
        """The scheduler is cut off, or comes back."""
        self.world.answers = answers

    def come_to_rest(self) -> None:
        """When the faults stop, every job ends, and nothing that is under way starts one again."""
        world, last = self.world, self.two[0]
        world.answers = True
        self.two[1].kill()
        if world.owner != f"{last.name}.{last.births}":
            world.now_s += 20
        for _ in range(25):
            last.whole_pass()
            world.now_s += 3  # more than a minute in all: some summaries are never written
            for job_id in sorted(world.scheduler.jobs):
                world.start(job_id)
                world.end(job_id, "succeeded")
                world.record(job_id)
        left = [job for job in world.rows.values() if job.phase is not Phase.FINAL]
        assert not left, f"these never end: {left}"
        for order in world.under_way:
            world.put(order)
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
    (3, Story.late_put),
    (8, lambda story: story.scheduler(story.world.start)),
    (8, lambda story: story.scheduler(story.world.record)),
    (2, lambda story: story.scheduler(story.world.restart)),
    (5, lambda story: story.scheduler(story.world.end, story.draw.choice(ENDS))),
    (2, lambda story: story.world.forget()),
    (2, lambda story: story.world.boot()),
)


def walk(seed: int, moves: int) -> None:
    """One random story, to its rest."""
    story = Story(seed)
    weights, acts = zip(*MOVES, strict=True)
    for act in story.draw.choices(acts, weights, k=moves):
        act(story)
    story.come_to_rest()
