"""Real trainings that are interrupted and resumed, run as a script: FOLDER PREPARED STORIES.

STORIES is a JSON file: for each name the spec's overrides, and for each attempt its number of ranks
and how it ends. The ranks are forks of one process that has torch loaded. Each leaves its weights,
optimizer states and events in FOLDER.

How an attempt ends, in terms of the places that a rank has passed at its agreement:
    {}                      by itself
    {"stop": place}         a stop is asked for when rank 0 is there; the others hear of it later
    {"stop": place, "by": r}                           ... when rank r is there
    {"stop": place, "by all": True}                    ... by each rank when it is there itself
    {"kill": place}         every rank is there killed with SIGKILL, after its checkpoints are whole
    {"checkpoint": place}   a checkpoint is asked for, and the training goes on
"""

import faulthandler
import json
import os
import signal
import sys
import threading
import time
import traceback
from datetime import timedelta
from pathlib import Path

import torch
from small_jobs import make_spec
from torch.distributed import TCPStore

from distrain.jobs.assignment import Assignment, Rendezvous, World
from distrain.jobs.events import to_json
from distrain.train.control.control import Control
from distrain.train.loop.trainer import Trainer
from distrain.train.rank.process import run_rank

COMPILER = {"sympy", "torch._dynamo"}  # parts of torch's, which take a rank a second to load
ATTEMPT_S = 120.0  # an attempt takes a second; a busy machine's disk may stall


def state_of(trainer):
    """All that the training's future depends on, on this rank."""
    dense = trainer.step.dense.optimizer.torch_optimizer.state.values()  # by parameter
    state = {f"model.{name}": value for name, value in trainer.model.state_dict().items()}
    state |= {f"sparse.{n}": v for n, v in trainer.step.sparse_optimizer.state_dict().items()}
    for number, memory in enumerate(dense):
        tensors = {name: value for name, value in memory.items() if torch.is_tensor(value)}
        state |= {f"dense.{number}.{name}": value for name, value in tensors.items()}
    return {name: value.detach().cpu().clone() for name, value in state.items()}


def interrupt(control, rank, end, kept):
    """Have something happen at a place."""
    agreement, begin = control.agreement, control.agreement.begin
    stops, place = "stop" in end, end.get("stop", end.get("checkpoint"))

    def ask():
        agreement.request(1, stops=stops, wait_s=ATTEMPT_S)

    def hear():
        while not control.store.check("test/asked"):
            time.sleep(0.001)
        ask()

    def begin_and_act():
        if agreement.passed == end.get("kill"):
            kept["trainer"].checkpoints.wait()
            os.kill(os.getpid(), signal.SIGKILL)
        if agreement.passed == place and end.get("by all"):
            ask()
        elif agreement.passed == place and rank == end.get("by", 0):
            control.store.post("test/asked", "1")
            ask()
        return begin()

    agreement.begin = begin_and_act
    if place is not None and rank != end.get("by", 0) and not end.get("by all"):
        threading.Thread(target=hear, daemon=True).start()


def live(assignment, end, out):
    """One rank's process."""
    torch.set_num_threads(1)
    rank, events, kept = assignment.world.rank, [], {}
    run = Trainer.run

    def run_and_keep(trainer):
        kept["trainer"] = trainer
        return run(trainer)

    Trainer.run = run_and_keep
    told = out.with_suffix(".events").open("w")

    def report(event):
        events.append(event)
        told.write(json.dumps(to_json(event)) + "\n")
        told.flush()  # as a pipe would be, when the process is killed

    control = Control.supervised(assignment, report, lambda: os._exit(3), timeout_s=ATTEMPT_S)
    interrupt(control, rank, end, kept)
    failure = run_rank(assignment, report, control)
    if failure is not None:
        print(failure.message, failure.traceback, file=sys.stderr, flush=True)
        return 1
    out.with_suffix(".loaded").write_text(" ".join(COMPILER & sys.modules.keys()))
    torch.save(state_of(kept["trainer"]), out)
    return 0


def run_attempt(spec, name, attempt, end, folder, port):
    """All ranks of one attempt, to their end."""
    num_ranks = spec.resources.num_ranks
    children = {}
    for rank in range(num_ranks):
        assignment = Assignment(
            name,
            attempt,
            World(rank, num_ranks),
            spec.model_dump(mode="json"),
            str(folder / name),
            Rendezvous("127.0.0.1", port, f"{name}/{attempt}"),
        )
        pid = os.fork()
        if pid == 0:
            code = 1
            faulthandler.enable()
            try:
                code = live(assignment, end, folder / f"{name}.{attempt}.{rank}.pt")
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        children[pid] = rank
    deadline_s = time.monotonic() + ATTEMPT_S
    wanted = -signal.SIGKILL if "kill" in end else 0
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            assert code == wanted, f"{name}, attempt {attempt}, rank {children[pid]}: {code}"
            del children[pid]
        elif time.monotonic() > deadline_s:
            for left in children:
                os.kill(left, signal.SIGABRT)  # faulthandler tells where each thread is
            raise AssertionError(f"{name}, attempt {attempt}: ranks hang: {children.values()}")
        else:
            time.sleep(0.002)


def store_port():
    """The port of a store in a process of its own, which ends with this one.

    Its threads would be in this process: a rank is a fork, which inherits their locks.
    """
    (life, lifeline), (told, tell) = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(lifeline)
        timeout = timedelta(seconds=ATTEMPT_S)
        store = TCPStore("127.0.0.1", 0, is_master=True, timeout=timeout)
        os.write(tell, str(store.port).encode())
        os.read(life, 1)
        os._exit(0)
    return int(os.read(told, 16))


def main(folder, prepared, stories):
    port = store_port()
    for name, story in stories.items():
        for attempt, part in enumerate(story["attempts"], 1):
            spec = make_spec(prepared, *story["spec"], *part.get("spec", []))
            run_dir = folder / name
            run_dir.mkdir(exist_ok=True)
            (run_dir / "spec.yaml").write_text(json.dumps(spec.model_dump(mode="json")))
            run_attempt(spec, name, attempt, part.get("end", {}), folder, port)
    (folder / "done").touch()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(Path(sys.argv[3]).read_text()))
    os._exit(0)
