"""Take pictures of the demo's report, the service's pages and the Training page.

    python docs/_ext/page_pictures.py docs/images

Needs Chromium, and the extras `service` and `dev`; takes some minutes.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

COMMAND = [sys.executable, "-m", "distrain"]
COLOURS = 128


def main() -> None:
    (out,) = map(Path, sys.argv[1:])
    out = out.absolute()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        distrain("demo", "--out", "demo")
        distrain("report", "demo/run")
        distrain("synth", "--rows", "200k", "--valid-rows", "20k", "--out", "raw")
        distrain("prep", "raw/train-00000.tsv", "--valid", "raw/valid-00000.tsv", "--out", "criteo")
        distrain("init", "criteo-dlrm", "--data", "criteo", "--ranks", "1")
        words = ["serve", "--json", "--stop-clusters", "--port", "0", "--data-dir", "served"]
        with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            try:
                os.environ |= {"DISTRAIN_SERVER": told["url"], "DISTRAIN_TOKEN": told["token"]}
                take_pictures(told, run_jobs(), out)
            finally:
                process.terminate()


def run_jobs() -> list[str]:
    """Two jobs that have ended, one that trains, one that waits: their ids."""
    short = {"train.global_batch_size": "1024", "evaluate.every_steps": "40"}
    short |= {"train.log_every_steps": "10"}
    slow = short | {"train.epochs": "200", "name": "nightly"}
    ended = [
        submit(short | {"name": f"lr-{rate}", "train.optimizer.lr": rate}, "--wait")
        for rate in ("0.02", "0.005")
    ]
    wide = slow | {"name": "wide", "resources.num_ranks": "2"}
    return [*ended, submit(slow), submit(wide)]


def submit(settings: dict[str, str], *words: str) -> str:
    options = [word for item in settings.items() for word in ("--set", "=".join(item))]
    answer = json.loads(distrain("submit", "job.yaml", *options, *words, "--json"))
    return str(answer["job"]["id"])


def take_pictures(told: dict[str, Any], jobs: list[str], out: Path) -> None:
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        page.set_default_timeout(300_000)
        page.goto(f"{told['url']}/jobs")
        page.fill("#token", told["token"])
        page.keyboard.press("Enter")
        page.wait_for_url("**/jobs")
        row = page.locator("tr").filter(has_text="nightly").filter(has_text="running")
        row.wait_for()
        save(page, out / "service-jobs.png")
        page.goto(f"{told['url']}/compare?job={jobs[0]}&job={jobs[1]}")
        page.wait_for_selector("figure canvas")
        page.get_by_role("heading", name="Curves").scroll_into_view_if_needed()
        save(page, out / "service-compare.png")
        state = json.loads(Path("served/clusters/local/state.json").read_text())
        page.goto(f"{state['url']}/distrain?token={state['token']}")
        page.wait_for_function("window.Bokeh && Bokeh.documents.length > 0")
        page.wait_for_selector(".slick-row")
        save(page, out / "training-page.png")
        page.set_viewport_size({"width": 1200, "height": 1390})
        page.goto(Path("demo/run/report.html").absolute().as_uri())
        save(page, out / "demo-report.png")
        browser.close()


def save(page: Page, path: Path) -> None:
    """A picture of the window in few colours, so that the file is small."""
    page.wait_for_timeout(3000)  # animations of charts, and fonts
    page.screenshot(path=path)
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(COLOURS).save(path, optimize=True)
    print(path, path.stat().st_size)


def distrain(*words: str) -> str:
    return subprocess.run([*COMMAND, *words], check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
