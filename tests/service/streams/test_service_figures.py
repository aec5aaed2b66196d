"""What `/metrics` of a service tells: stable names and right values."""

import math
import time
from pathlib import Path

import httpx2
from live_service import live_service
from made_certificates import write_certificate
from prometheus_names import SERVICE_NAMES, Samples, samples_of

from distrain.service.settings import ClusterProfile, Listen, TlsFiles
from distrain.workers.certificates import ends_s


def scrape(url: str) -> Samples:
    return samples_of(httpx2.get(f"{url}/metrics").text, SERVICE_NAMES)


def test_names_and_values(tmp_path: Path) -> None:
    cert_file, key_file, end_s = write_certificate(tmp_path, "service", 10)
    tls = TlsFiles(cert_file=cert_file, key_file=key_file)
    clusters = {
        "far": ClusterProfile(url="http://127.0.0.1:9", run_root=tmp_path, tls=tls),
        "new": ClusterProfile(url="http://127.0.0.1:9"),
    }
    options = {"clusters": clusters, "listen": Listen(tls=tls)}
    with live_service(tmp_path, options) as live:
        before = scrape(live.url)
        assert before["distrain_service_ready"][()] == 0
        assert before["distrain_service_backup_timestamp_seconds"][()] == 0
        assert before["distrain_service_cluster_silence_seconds"]["new", "address"] == math.inf
        assert "distrain_service_reconcile_lag_seconds" not in before
        good, bad = (live.end(live.job(cluster="far"), end) for end in ("succeeded", "failed"))
        assert good.finished_at_s
        assert bad.finished_at_s
        waits = live.job(cluster="far")
        for name in clusters:
            state = {"workers": {"total": 4, "usable": 3, "free": 2, "gpus": 0}, "jobs": 1}
            live.store.put_cluster(name, state, live.store.now_s() - 100)
        live.store.backup(tmp_path / "copy.db")
        found = scrape(live.url)
        assert waits.id
        assert found["distrain_service_ready"][()] == 1
        assert found["distrain_service_jobs_ended_last_hour"] == {("succeeded",): 1, ("failed",): 1}
        silence_s = found["distrain_service_cluster_silence_seconds"]["far", "address"]
        assert 100 <= silence_s < 400
        assert found["distrain_service_cluster_jobs"] == {("far",): 1, ("new",): 1}
        assert found["distrain_service_cluster_workers"]["far", "usable"] == 3
        assert set(found["distrain_service_cluster_report_age_seconds"]) == {("far",), ("new",)}
        assert found["distrain_service_events_lag_seconds"][()] >= 0
        assert abs(found["distrain_service_backup_timestamp_seconds"][()] - time.time()) < 600
        assert found["distrain_service_certificate_end_timestamp_seconds"] == {
            ("listen.tls.cert_file",): end_s, ("clusters.far.tls.cert_file",): end_s
        }  # fmt: skip
        assert set(found) == set(SERVICE_NAMES)


def test_the_end_of_certificates(tmp_path: Path) -> None:
    cert_file, key_file, end_s = write_certificate(tmp_path, "one", 3)
    assert ends_s(cert_file) == ends_s(cert_file.read_text()) == end_s
    other, _, sooner_s = write_certificate(tmp_path, "two", -1)
    chain = tmp_path / "chain.pem"
    chain.write_text(cert_file.read_text() + other.read_text())
    assert ends_s(chain) == sooner_s
    assert ends_s(key_file) is None
    assert ends_s(tmp_path / "absent.pem") is None
