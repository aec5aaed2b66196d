"""A job's batches, one epoch after another without a pause."""

from distrain.loader import EpochIterator, InTurn, Loader


class EpochPrefetch(InTurn):
    """A job's batches; threads already read the next window or epoch while the last ones train.

    Args:
        num_steps: The batches of all epochs: no epoch begins without need.
        ahead_batches: As many are left of an epoch or window when the next one begins.
        first_step: Steps before it are left out, and nothing is read for them.
    """

    def __init__(self, loader: Loader, num_steps: int, ahead_batches: int, first_step: int = 0):
        steps = loader.steps

        def begin(step: int) -> EpochIterator:
            epoch, of_epoch = divmod(step, steps.num_steps)
            return loader.window(epoch, of_epoch)

        def end_of(step: int) -> int:
            of_epoch = step % steps.num_steps
            return step - of_epoch + steps.span(steps.window_of(of_epoch))[1]

        super().__init__(begin, end_of, range(first_step, num_steps), ahead_batches)
