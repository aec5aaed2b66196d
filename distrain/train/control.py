"""What goes on around a rank's training, and that the training must heed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from distrain.events import Event, Heartbeat
from distrain.train.assignment import Assignment
from distrain.train.board import DecidingBoard, LocalDecidingBoard, StoreBoard
from distrain.train.farewell import Farewell
from distrain.train.gate import StepGate
from distrain.train.whereabouts import Whereabouts


@dataclass(frozen=True)
class Control:
    """Where the training asks before each step, and where others look at it.

    Attributes:
        board: The ranks' notice board.
        gate: Which steps may begin, and where to save or stop.
        where: Tells others where the training is.
        farewell: Watches over the time of a stop; `None` for a rank without a supervisor, which
            nobody else tells when to save.
    """

    board: DecidingBoard
    gate: StepGate
    where: Whereabouts
    farewell: Farewell | None = None

    @classmethod
    def alone(cls) -> Control:
        """For one rank that nobody supervises."""
        board = LocalDecidingBoard()
        return cls(board, StepGate(board, 0, 1), Whereabouts())

    @classmethod
    def supervised(
        cls,
        assignment: Assignment,
        report: Callable[[Event], None],
        leave: Callable[[], None],
        *,
        timeout_s: float,
    ) -> Control:
        """For a rank with a supervisor; the thread that calls this must be the one that trains.

        Args:
            assignment: Its work.
            report: Takes its events.
            leave: Ends its process.
            timeout_s: The longest wait for the store in which the board is.

        Raises:
            torch.distributed.DistError: The store could not be reached.
        """
        meeting, world = assignment.rendezvous, assignment.world
        board: DecidingBoard = LocalDecidingBoard()
        if meeting is not None:
            board = StoreBoard.join(meeting, timeout_s)
        where = Whereabouts()
        farewell = Farewell(world.rank, where, report, leave)
        gate = StepGate(board, world.rank, world.num_ranks, farewell.stop_agreed)
        return cls(board, gate, where, farewell)

    def heartbeat(self, rank: int) -> Heartbeat:
        """What the rank is at now."""
        where = self.where
        progress = self.gate.passed + where.slabs
        return Heartbeat(rank, where.step, progress, where.doing, where.waiting_for)
