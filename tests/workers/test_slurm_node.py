"""What tasks of a Slurm job make of Slurm's variables, and the certificate of their cluster."""

import ssl
import stat

import pytest

from distrain.errors import ClusterError
from distrain.workers import serve_slurm
from distrain.workers.secrets import has_certificates, tls_environment, write_certificate


@pytest.mark.parametrize(
    ("shown", "on_node", "place", "gpu"),
    [
        ("0,1,2,3", "4", "3", "3"),
        ("GPU-aa,MIG-bb", "2", "1", "MIG-bb"),
        ("0", "4", "3", "0"),  # --gpus-per-task
        (None, None, "2", "2"),  # a Slurm without GRES
        ("5", None, None, "5"),
    ],
)
def test_a_task_takes_the_gpu_of_its_place(shown, on_node, place, gpu):
    given = {"CUDA_VISIBLE_DEVICES": shown, "SLURM_GPUS_ON_NODE": on_node, "SLURM_LOCALID": place}
    assert serve_slurm.gpu_of({name: value for name, value in given.items() if value}) == gpu


@pytest.mark.parametrize(("shown", "on_node"), [("0,1", "2"), ("0", "1"), ("0,1", "4")])
def test_more_tasks_than_gpus_are_refused(shown, on_node):
    given = {"CUDA_VISIBLE_DEVICES": shown, "SLURM_GPUS_ON_NODE": on_node, "SLURM_LOCALID": "2"}
    with pytest.raises(ClusterError):
        serve_slurm.gpu_of(given)


def test_where_the_processes_of_a_node_listen(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "node7")
    monkeypatch.setattr("socket.gethostbyname", lambda _: "127.0.1.1")
    assert serve_slurm.listening_words({"SLURM_JOB_NUM_NODES": "1"}) == ["--host", "node7"]
    with_ib = {"SLURM_JOB_NUM_NODES": "2", "DISTRAIN_INTERFACE": "ib0"}
    assert serve_slurm.listening_words(with_ib) == ["--interface", "ib0"]
    # Other nodes cannot use a name that means loopback, as Debian's installer leaves it.
    assert serve_slurm.address_of_node({"SLURM_JOB_NUM_NODES": "2"}) != "node7"
    monkeypatch.setattr("socket.gethostbyname", lambda _: "10.0.0.7")
    assert serve_slurm.address_of_node({"SLURM_JOB_NUM_NODES": "2"}) == "node7"


def test_a_certificate_is_the_owners_alone_and_signs_itself(tmp_path):
    file = tmp_path / "tls.pem"
    write_certificate(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    variables = tls_environment(file)
    assert {value for name, value in variables.items() if "__TLS__" in name} == {str(file)}
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    server.load_cert_chain(file, file)
    client.check_hostname = False  # as Dask does
    client.load_verify_locations(file)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = server.wrap_bio(to_server, to_client, server_side=True)
    asking = client.wrap_bio(to_client, to_server)
    for _ in range(4):
        for side in (asking, serving):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert asking.version() == "TLSv1.3"


def test_the_users_own_certificates_are_seen():
    import dask

    assert not has_certificates()
    with dask.config.set({"distributed.comm.tls.ca-file": "/etc/ca.pem"}):
        assert has_certificates()


@pytest.mark.parametrize("is_followed", [False, True])
def test_a_cluster_removes_its_own_address_at_its_end(tmp_path, is_followed):
    ended = serve_slurm._Task(tmp_path, "cpu", {"SLURM_JOB_ID": "12"})
    later = serve_slurm._Task(tmp_path, "cpu", {"SLURM_JOB_ID": "13"})
    ended._publish("tls://a:1", "http://a:2", "first")
    names = {"url", "token", "client.env"}
    assert {file.name for file in tmp_path.iterdir()} == names
    if is_followed:
        later._publish("tls://b:1", "http://b:2", "second")
    ended._remove_files()
    assert {file.name for file in tmp_path.iterdir()} == (names if is_followed else set())
