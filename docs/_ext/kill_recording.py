"""Draw the terminal of a training whose rank is killed, and compare its model with a peaceful one.

    python docs/_ext/kill_recording.py docs/images/kill-and-resume.svg

Trains the same job twice on two ranks. In the second run one rank is killed with SIGKILL after step
150. Fails if the two models differ in one byte. Takes about three minutes.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

KILL_AFTER_STEP = 150
TRAIN = ["train", "job.yaml", "--set", "train.epochs=1", "--set", "checkpoint.every_steps=50"]
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
    font-family: monospace; font-size: {char_height}px; line-height: {line_height}px;
}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main() -> None:
    out = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        distrain(path, "synth", "--rows", "100k", "--valid-rows", "20k", "--out", "raw")
        files = ["raw/train-00000.tsv", "--valid", "raw/valid-00000.tsv"]
        distrain(path, "prep", *files, "--out", "criteo")
        distrain(path, "init", "dlrm", "--data", "criteo", "--ranks", "2")
        distrain(path, *TRAIN, "--run-dir", "peaceful")
        screen = Console(record=True, width=104, file=(path / "screen.txt").open("w"))
        screen.print(Text(f"$ distrain {' '.join(TRAIN)} --run-dir killed", style="bold"))
        train_and_kill(path, screen)
        show_models(path, screen)
        screen.save_svg(str(out), title="kill -9 and resume", theme=MONOKAI, code_format=SVG)


def distrain(folder: Path, *words: str) -> None:
    command = [sys.executable, "-m", "distrain", *words]
    subprocess.run(command, check=True, cwd=folder, capture_output=True)


def train_and_kill(folder: Path, screen: Console) -> None:
    """Train; kill a rank after the step; copy the lines up to the end of the job to the screen."""
    command = [sys.executable, "-m", "distrain", *TRAIN, "--run-dir", "killed"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    killed = False
    with subprocess.Popen(command, cwd=folder, text=True, **streams) as process:  # type: ignore[call-overload]
        for line in process.stdout:
            if line.startswith(("job ", "step ", "validated ", "note: rank")):
                screen.print(Text(re.sub(r"^(job \w+)-\S+:", r"\1:", line.rstrip())))
            step = re.match(r"step (\d+)/", line)
            if not killed and step and int(step[1]) >= KILL_AFTER_STEP:
                rank = rank_of(process.pid)
                screen.print(
                    Text(f"$ kill -9 {rank.pid}     # one of the two ranks", style="bold red")
                )
                rank.kill()
                killed = True
    if not killed or process.returncode:
        sys.exit("the training ended before the rank was killed, or it failed")


def rank_of(pid: int) -> psutil.Process:
    """Return the process of the last rank that the command with this pid started."""
    children = psutil.Process(pid).children(recursive=True)
    return [child for child in children if "distrain.train.rank" in child.cmdline()][-1]


def show_models(folder: Path, screen: Console) -> None:
    """Print the hashes of both models, which must be equal."""
    files = [f"{run}/model/weights.safetensors" for run in ("peaceful", "killed")]
    screen.print(Text(f"$ sha256sum {' '.join(files)}", style="bold"))
    hashes = [hashlib.sha256((folder / file).read_bytes()).hexdigest() for file in files]
    for file, found in zip(files, hashes, strict=True):
        screen.print(Text(f"{found}  {file}"))
    if hashes[0] != hashes[1]:
        sys.exit("the models differ")


if __name__ == "__main__":
    main()
