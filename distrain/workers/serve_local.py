"""`python -m distrain.workers.serve_local FOLDER`: runs a cluster on this machine until SIGTERM.

The job service starts this program in a session of its own, and finds the cluster through
`FOLDER/state.json`. If the program is started several times for one folder, the first process that
locks `FOLDER/alive.lock` starts the cluster, and the others exit at once with code 0.
"""

import argparse
import logging
import os
import secrets
import sys
import time
from dataclasses import replace
from pathlib import Path

from distrain.errors import ClusterError, DistrainError, Terminated, on_sigterm
from distrain.workers.cluster_file import (
    ProcessId,
    StartedCluster,
    errors_recorded,
    try_lock,
    write_started,
)
from distrain.workers.local import count_gpus, local_cluster
from distrain.workers.secrets import TOKEN_VARIABLE
from distrain.workers.worker_replacement import CHECK_S, why_lost

DEFAULT_WORKERS = 2  # workers on a machine without GPUs


def main(args: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m distrain.workers.serve_local")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, help="Default: one per GPU, or 2 on CPUs.")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    given = parser.parse_args(args)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        with on_sigterm(), try_lock(given.folder / "alive.lock") as is_it:
            if not is_it:
                logging.info("another process already runs the cluster of %s", given.folder)
                return 0
            _run(given.folder, given.workers, given.device)
    except Terminated:
        logging.info("terminated")
    except DistrainError as error:
        logging.error("%s", error)
        return error.exit_code
    return 0


def _run(folder: Path, workers: int | None, device: str) -> None:
    process = ProcessId.of(os.getpid())
    if process is None:
        raise ClusterError(
            "this process cannot be identified", hint="Mount /proc where the service runs."
        )
    started = StartedCluster(process, secrets.token_urlsafe(32))
    os.environ[TOKEN_VARIABLE] = started.token
    write_started(folder, started)
    with errors_recorded(folder, started):
        num_workers = workers or (count_gpus() if device != "cpu" else 0) or DEFAULT_WORKERS
        with local_cluster(num_workers, 1, device, "127.0.0.1:0", private=True) as client:
            scheduler = client.cluster.scheduler
            running = replace(
                started,
                url=f"http://127.0.0.1:{scheduler.http_server.port}",
                scheduler=scheduler.address,
                num_workers=num_workers,
            )
            write_started(folder, running)
            logging.info("%s workers at %s", num_workers, running.url)
            while (why := why_lost(client)) is None:
                time.sleep(CHECK_S)
            raise ClusterError(
                f"the cluster has ended: {why}",
                where={"folder": folder},
                hint="See its workers' output in the file log there; the service restarts it.",
            )


if __name__ == "__main__":
    sys.exit(main())
