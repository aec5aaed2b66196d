"""A run of two ranks, watched and reported while it goes on."""

import re
import signal
import subprocess

import pytest
import yaml
from small_jobs import distrain_command, run_distrain, small_document, write_prepared


@pytest.mark.slow
def test_a_run_is_watched_and_reported_while_it_goes_on_and_after_its_end(tmp_path):
    document = small_document(write_prepared(tmp_path / "prepared"))
    document["train"] |= {"max_steps": None, "epochs": 2000}
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump(document))
    run, page = tmp_path / "run", tmp_path / "page.html"
    with subprocess.Popen(
        distrain_command("train", job, "--run-dir", run, "--sink", "tensorboard"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as training:
        try:
            url, job_id = "", ""
            for line in training.stdout:
                url = (re.findall(r"dashboard: (http\S+)", line) or [url])[0]
                job_id = (re.findall(r"^job (\S+): running", line) or [job_id])[0]
                if line.startswith("step "):
                    break
            top = run_distrain("top", "--dashboard", url, "--once")
            report = run_distrain("report", run, "--out", page)
            text = page.read_text()
        finally:
            training.send_signal(signal.SIGINT)
            training.communicate(timeout=120)
    lines = top.stdout.splitlines()
    assert re.match(
        rf"{job_id}  running  step \d+/\d+  [\d,]+ rows/s  .*training: loss 0\.\d+", lines[0]
    )
    assert [re.findall(r"rank (\d)  (\S+)", line)[0][0] for line in lines[1:]] == ["0", "1"]
    assert report.returncode == 0, report.stderr
    assert "<th>state</th><td>running</td>" in text
    assert text.count("data:image/svg+xml") >= 5
    assert "The run has not ended; attempt 1 was running." in text
    assert re.findall(r"<th>(\d)</th><td>[^<]+</td><td>cpu</td>", text) == ["0", "1"]
    assert run_distrain("report", run).returncode == 0
    assert "<th>state</th><td>cancelled</td>" in (run / "report.html").read_text()
    assert list((run / "tensorboard").glob("events.out.tfevents.*"))
