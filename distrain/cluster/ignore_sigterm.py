"""A preload of Dask's scheduler and nannies that leaves SIGTERM to the process that started them.

Slurm sends SIGTERM to every process of a step. The scheduler must not end by it while ranks save
checkpoints, and a nanny that gets it besides the notice of its task would end at once. Dask has set
its handlers before it calls preloads; a nanny's worker inherits that the signal is ignored.
"""

import signal


def dask_setup(_server: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
