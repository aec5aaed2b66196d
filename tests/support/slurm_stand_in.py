"""sbatch, squeue, scancel and srun for tests: jobs are processes of this machine, kept in files.

It knows what the service's launcher uses: names, `--dependency=singleton`, states, cancelling. Each
job has a keeper, a process of its own session, that waits for its turn and runs its script.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

COMMANDS = ("sbatch", "squeue", "scancel", "srun")
POLL_S = 0.02


def install(folder: Path) -> dict[str, str]:
    """Put the commands into a folder; returns the variables with which they work."""
    for name in COMMANDS:
        command = folder / "bin" / name
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text(f"#!{sys.executable}\n{Path(__file__).read_text()}")
        command.chmod(0o755)
    return {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "SLURM_STAND_IN": str(folder)}


def jobs_in(folder: Path) -> list[dict[str, Any]]:
    """All jobs whose keeper lives, with their states."""
    found = []
    for file in sorted(folder.glob("job-*.json"), key=lambda file: int(file.stem[4:])):
        job = json.loads(file.read_text())
        if is_alive(job["keeper"]):
            job["state"] = "RUNNING" if (folder / f"running-{job['id']}").exists() else "PENDING"
            found.append(job)
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def write(file: Path, values: dict[str, Any]) -> None:
    partial = file.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(values))
    partial.rename(file)


def sbatch(folder: Path, words: list[str]) -> None:
    script = Path(words[-1])
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", script.read_text(), re.M))
    time.sleep(float(os.environ.get("SLURM_STAND_IN_BEFORE_S", "0")))
    number = 1
    while True:  # the first name that is free
        try:
            os.close(os.open(folder / f"id-{number}", os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            number += 1
    keeper = os.fork()
    if keeper == 0:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        job = {
            "id": number,
            "name": options["job-name"],
            "keeper": os.getpid(),
            "ntasks": options["ntasks"],
        }
        write(folder / f"job-{number}.json", job)
        keep(folder, job, script.read_text(), options)
        os._exit(0)
    while not (folder / f"job-{number}.json").exists():
        time.sleep(POLL_S)
    time.sleep(float(os.environ.get("SLURM_STAND_IN_AFTER_S", "0")))
    print(number)


def keep(folder: Path, job: dict[str, Any], script: str, options: dict[str, str]) -> None:
    if options.get("dependency") == "singleton":
        while any(
            other["name"] == job["name"] and other["id"] < job["id"] for other in jobs_in(folder)
        ):
            time.sleep(POLL_S)
    (folder / f"running-{job['id']}").touch()
    environment = {
        **os.environ,
        "SLURM_JOB_ID": str(job["id"]),
        "SLURM_NTASKS": job["ntasks"],
    }
    with open(options["output"].replace("%j", str(job["id"])), "ab") as log:
        process = subprocess.Popen(
            ["bash", "-s"], stdin=subprocess.PIPE, env=environment, stdout=log, stderr=log
        )
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    signal.signal(signal.SIGUSR1, lambda *_: process.send_signal(signal.SIGUSR1))
    process.communicate(script.encode())


def squeue(folder: Path, words: list[str]) -> None:
    [name] = [word.partition("=")[2] for word in words if word.startswith("--name=")]
    for job in jobs_in(folder):
        if job["name"] == name:
            why = "None" if job["state"] == "RUNNING" else "Dependency"
            print(f"{job['id']}|{job['state']}|{why}")


def scancel(folder: Path, words: list[str]) -> None:
    for job in jobs_in(folder):
        if str(job["id"]) in words:
            if "--signal=USR1" in words:
                os.kill(job["keeper"], signal.SIGUSR1)
            elif job["state"] == "RUNNING":
                os.kill(job["keeper"], signal.SIGTERM)
            else:
                os.kill(job["keeper"], signal.SIGKILL)


def srun(folder: Path, words: list[str]) -> None:
    command = [word for word in words if not word.startswith("--kill")]
    command = [os.environ.get("SLURM_STAND_IN_PROGRAM", command[0]), *command[1:]]
    tasks = [
        subprocess.Popen(
            command, env={**os.environ, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)}
        )
        for rank in range(int(os.environ["SLURM_NTASKS"]))
    ]

    def pass_on(number: int, _: object) -> None:
        for task in tasks:
            task.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, pass_on)
    sys.exit(max(abs(task.wait()) for task in tasks))


if __name__ == "__main__":
    command = Path(sys.argv[0]).name
    globals()[command](Path(os.environ["SLURM_STAND_IN"]), sys.argv[1:])
