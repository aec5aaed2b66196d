"""The script of a cluster's Slurm job, as text."""

import re
import shlex
from collections.abc import Mapping

from distrain.cluster import NOTICE_S
from distrain.errors import InputError

_OURS = frozenset(
    ("job-name", "dependency", "signal", "output", "error", "ntasks", "open-mode", "requeue",
     "no-requeue", "comment", "chdir", "export")
)  # fmt: skip

_CPUS = '[ -z "$SLURM_CPUS_PER_TASK" ] || export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"'
"""Since Slurm 22.05 srun does not take over --cpus-per-task of sbatch: tasks had one CPU each."""


def sbatch_script(
    *,
    job_name: str,
    folder: str,
    python: str,
    num_workers: int,
    device: str,
    options: Mapping[str, str],
    environment: Mapping[str, str],
) -> str:
    """One task per worker; the first has the scheduler beside it.

    `singleton` has Slurm run one job of that name and user at a time, so that a second one, of a
    starter that was killed between `sbatch` and its answer, waits until it is found and cancelled.

    Args:
        folder: The cluster's, on a filesystem that all nodes and the service see.
        options: Of sbatch, such as `{"partition": "gpu", "time": "8:00:00"}`.

    Raises:
        InputError: An option's name is none or the service's own, or a value has several lines.
    """
    given = {name.replace("_", "-"): value for name, value in options.items()}
    for name, value in given.items():
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name) or name in _OURS:
            raise InputError(
                f"slurm.{name}: the service sets this option itself, or sbatch has none such",
                hint="`sbatch --help` lists options, written here without `--`.",
            )
        if not re.fullmatch(r"[ -~]*", value):
            raise InputError(f"slurm.{name}: the value is not one line of ASCII: {value!r}")
    lines = {
        "job-name": job_name,
        "dependency": "singleton",
        "ntasks": str(num_workers),
        "output": f"{folder}/job-%j.log",
        "no-requeue": "",
        "signal": f"USR1@{NOTICE_S}",
        **given,
    }
    program = [python, "-P", "-m", "distrain.cluster.serve_slurm", folder, "--device", device]
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH --{name}={value}" if value else f"#SBATCH --{name}"
              for name, value in lines.items()),
            "umask 077",
            _CPUS,
            *(f"export {name}={shlex.quote(value)}" for name, value in environment.items()),
            f"exec srun --kill-on-bad-exit=1 {shlex.join(program)}",
            "",
        ]
    )  # fmt: skip
