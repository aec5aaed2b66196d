import pytest

from distrain.diagnostics.check import Check, CheckVerdict
from distrain.diagnostics.doctor import machine as checks
from distrain.diagnostics.doctor.machine import check_machine, check_scheduler, check_write_access


def by_name(found):
    return {check.name: check for check in found}


def test_the_machine_is_looked_at_from_all_sides():
    found = list(check_machine())
    assert all(isinstance(check, Check) and check.detail for check in found)
    names = [check.name for check in found]
    assert len(names) == len(set(names))
    assert {"python", "torch", "dask", "dask = distributed", "cores", "memory", "gpu"} <= set(names)
    failed = [check for check in found if check.verdict is CheckVerdict.FAIL]
    assert all(check.mend for check in failed)


def test_a_missing_and_a_broken_package_say_how_to_mend_them(monkeypatch):
    monkeypatch.setattr(checks, "NEEDED", ("no-such-package-anywhere",))
    missing = by_name(check_machine())["no-such-package-anywhere"]
    assert missing.verdict is CheckVerdict.FAIL
    assert missing.mend == "pip install no-such-package-anywhere"

    def broken(name):
        raise OSError("libfoo.so: cannot open shared object file")

    monkeypatch.setattr(checks, "NEEDED", ("numpy",))
    monkeypatch.setattr(checks, "import_module", broken)
    found = by_name(check_machine())["numpy"]
    assert (found.verdict, found.mend) == (CheckVerdict.FAIL, "pip install -U numpy")
    assert "libfoo.so" in found.detail


def test_dask_and_distributed_of_different_versions_are_told(monkeypatch):
    versions = {"dask": "2026.7.1", "distributed": "2026.3.0"}
    monkeypatch.setattr(checks, "NEEDED", ())
    monkeypatch.setattr(checks, "version", versions.__getitem__)
    found = by_name(check_machine())["dask = distributed"]
    assert found.verdict is CheckVerdict.FAIL
    assert found.detail == "2026.7.1 and 2026.3.0"


def test_a_loader_without_its_kernel_is_told(monkeypatch):
    monkeypatch.setattr(checks, "NEEDED", ())
    for kernel, verdict in (("C", CheckVerdict.OK), ("NumPy", CheckVerdict.NOTE)):
        monkeypatch.setattr("distrain.loader.filling.kernel.KERNEL", kernel)
        assert by_name(check_machine())["loader kernel"].verdict is verdict


def test_a_page_decoder_that_is_off_or_not_built_is_told(monkeypatch):
    from distrain.loader.parquet_pages import leaves

    monkeypatch.setattr(checks, "NEEDED", ())
    for built, switch, verdict, words in (
        (True, "1", CheckVerdict.OK, "built"),
        (True, "0", CheckVerdict.NOTE, "off: DISTRAIN_PAGES is 0"),
        (False, "1", CheckVerdict.NOTE, "not built: Arrow decodes all columns, more slowly"),
    ):
        monkeypatch.setattr(leaves, "BUILT", built)
        monkeypatch.setattr("distrain.loader.parquet_pages.leaves.BUILT", built)
        monkeypatch.setenv("DISTRAIN_PAGES", switch)
        found = by_name(check_machine())["page decoder"]
        assert (found.verdict, found.detail) == (verdict, words)


@pytest.mark.parametrize(
    ("name", "flag", "instead"),
    [
        ("order kernel", "distrain.loader.partition.order.ORDER_IS_BUILT", "NumPy draws and sorts"),
        ("text splitter", "distrain.prep.raw_lines.SPLITTER_IS_BUILT", "Arrow reads all"),
    ],
)
def test_a_kernel_that_is_not_built_is_told(monkeypatch, name, flag, instead):
    monkeypatch.setattr(checks, "NEEDED", ())
    monkeypatch.setattr(flag, True)
    assert by_name(check_machine())[name].verdict is CheckVerdict.OK
    monkeypatch.setattr(flag, False)
    found = by_name(check_machine())[name]
    assert found.verdict is CheckVerdict.NOTE
    assert instead in found.detail


def test_tables_without_their_kernels_are_told(monkeypatch):
    from distrain.models.embeddings.kernels import cpu as kernels_cpu

    monkeypatch.setattr(checks, "NEEDED", ())
    for built, verdict in ((True, CheckVerdict.OK), (False, CheckVerdict.NOTE)):
        monkeypatch.setattr(kernels_cpu, "AVAILABLE", built)
        assert by_name(check_machine())["tables' kernels"].verdict is verdict


@pytest.mark.parametrize("look", ["_same_dask", "_cores", "_memory", "_shared_memory", "_gpus"])
def test_a_look_that_fails_is_a_finding_and_the_others_go_on(monkeypatch, look):
    def broken():
        raise RuntimeError("no luck")

    monkeypatch.setattr(checks, "NEEDED", ())
    before = len(list(check_machine()))
    monkeypatch.setattr(checks, look, broken)
    found = list(check_machine())
    assert len(found) == before
    (odd,) = [check for check in found if "no luck" in check.detail]
    assert odd.verdict is CheckVerdict.FAIL
    assert odd.detail == "cannot look: RuntimeError: no luck"


def test_shared_memory_that_cannot_be_written_is_told_whatever_is_free(monkeypatch, tmp_path):
    monkeypatch.setattr(checks, "NEEDED", ())
    monkeypatch.setattr("distrain.workers.local.SHARED_MEMORY", str(tmp_path / "missing"))
    found = by_name(check_machine())["/dev/shm"]
    assert found.verdict is CheckVerdict.FAIL
    assert found.detail == f"{tmp_path / 'missing'} cannot be written: No such file or directory"
    assert "mount -t tmpfs" in found.mend


def test_a_driver_that_torch_cannot_use_is_told(monkeypatch):
    monkeypatch.setattr("distrain.workers.local.count_gpus", lambda: 2)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(checks, "NEEDED", ())
    found = by_name(check_machine())["gpu"]
    assert found.verdict is CheckVerdict.FAIL
    assert "the driver shows 2, but torch" in found.detail
    assert "CUDA build" in found.mend


def test_a_folder_that_can_be_written(tmp_path):
    found = check_write_access(tmp_path / "runs")
    assert (found.verdict, found.detail) == (CheckVerdict.OK, str(tmp_path / "runs"))
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_folder_that_cannot_be_written_says_which_and_why(tmp_path):
    (tmp_path / "file").write_text("x")
    found = check_write_access(tmp_path / "file" / "runs")
    assert found.verdict is CheckVerdict.FAIL
    assert found.detail == f"{tmp_path / 'file' / 'runs'}: could not write: Not a directory"
    assert found.mend == "A part of the path is a file, not a folder."
    assert check_write_access(tmp_path / "a\0b").verdict is CheckVerdict.FAIL


@pytest.mark.parametrize(
    ("address", "words", "mend"),
    [
        ("tcp://127.0.0.1:9", "Timed out trying to connect", "Check the address"),
        ("nonsense", "missing port number", "Check the address"),
        ("carrier-pigeon://a:1", "unknown address scheme", "Check the address"),
        ("tls://127.0.0.1:9", "wants a certificate", "--tls-ca-file"),
        ("", "missing port number", "Check the address"),
    ],
)
def test_a_scheduler_that_does_not_answer_is_a_finding(address, words, mend):
    (found,) = check_scheduler(address, timeout_s=0.3)
    assert (found.name, found.verdict) == ("scheduler", CheckVerdict.FAIL)
    assert words in found.detail
    assert mend in found.mend


def test_a_cluster_without_and_with_workers():
    from distributed import LocalCluster

    options = {"processes": False, "dashboard_address": ":0", "threads_per_worker": 1}
    with LocalCluster(n_workers=0, **options) as cluster:
        address = cluster.scheduler_address
        answers, workers = check_scheduler(address, timeout_s=5.0)
        assert (answers.verdict, answers.detail) == (CheckVerdict.OK, f"{address}, 0 workers")
        assert (workers.verdict, workers.mend) == (
            CheckVerdict.FAIL,
            f"Start some: dask worker {address}",
        )
        cluster.scale(1)
        cluster.wait_for_workers(1, timeout=60)
        verdicts = [check.verdict for check in check_scheduler(address, timeout_s=5.0)]
        assert verdicts == [CheckVerdict.OK, CheckVerdict.OK]


def test_workers_of_other_versions_are_told(monkeypatch):
    from contextlib import contextmanager

    class Client:
        def scheduler_info(self, n_workers):
            return {"workers": {"tcp://a:1": {}}}

        def run(self, function):
            return {"tcp://a:1": {"distrain": "0.0.1"}}

    @contextmanager
    def connect(address, timeout_s):
        yield Client()

    monkeypatch.setattr("distrain.workers.sources.connect", connect)
    _, versions = check_scheduler("tcp://a:0")
    assert versions.verdict is CheckVerdict.FAIL
    assert versions.detail == "tcp://a:1 differ: {'distrain': '0.0.1'}"


def test_workers_that_cannot_run_us_are_told(monkeypatch):
    def connect(address, timeout_s):
        raise ModuleNotFoundError("No module named 'distrain'")

    monkeypatch.setattr("distrain.workers.sources.connect", connect)
    (found,) = check_scheduler("tcp://a:0")
    assert found.verdict is CheckVerdict.FAIL
    assert found.detail == "cannot run distrain there: No module named 'distrain'"
