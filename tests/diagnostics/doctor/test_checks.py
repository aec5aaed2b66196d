"""What the doctor makes of one machine and a folder."""

from unittest.mock import Mock

import torch

from distrain.diagnostics.check import Check, CheckVerdict
from distrain.diagnostics.doctor import machine as checks
from distrain.diagnostics.doctor.machine import check_machine, check_write_access


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
    monkeypatch.setattr(checks, "NEEDED", ("numpy",))
    monkeypatch.setattr(
        checks,
        "import_module",
        Mock(side_effect=OSError("libfoo.so: cannot open shared object file")),
    )
    found = by_name(check_machine())["numpy"]
    assert (found.verdict, found.mend) == (CheckVerdict.FAIL, "pip install -U numpy")
    assert "libfoo.so" in found.detail


MACHINE = "distrain.diagnostics.doctor.machine"
KERNELS = "distrain.models.embeddings.kernels"
ORDER = "distrain.loader.partition.row_order.ORDER_IS_BUILT"

MACHINE_FACTS: "list[tuple[dict[str, object], str, CheckVerdict]]" = [
    # What is so, the check that tells, and whether that is well.
    ({"distrain.loader.filling.kernel.KERNEL": "C"}, "loader kernel", CheckVerdict.OK),
    ({"distrain.loader.filling.kernel.KERNEL": "NumPy"}, "loader kernel", CheckVerdict.NOTE),
    ({"distrain.loader.parquet_pages.leaves.BUILT": True}, "page decoder", CheckVerdict.OK),
    ({"distrain.loader.parquet_pages.leaves.BUILT": False}, "page decoder", CheckVerdict.NOTE),
    ({ORDER: True}, "order kernel", CheckVerdict.OK),
    ({ORDER: False}, "order kernel", CheckVerdict.NOTE),
    ({"distrain.prep.raw_lines.SPLITTER_IS_BUILT": True}, "text splitter", CheckVerdict.OK),
    ({"distrain.prep.raw_lines.SPLITTER_IS_BUILT": False}, "text splitter", CheckVerdict.NOTE),
    ({f"{KERNELS}.cpu.AVAILABLE": True}, "tables' kernels", CheckVerdict.OK),
    ({f"{KERNELS}.cpu.AVAILABLE": False}, "tables' kernels", CheckVerdict.NOTE),
    ({f"{MACHINE}.version": {"dask": "1", "distributed": "2"}.__getitem__},
     "dask = distributed", CheckVerdict.FAIL),
    ({"distrain.workers.local.SHARED_MEMORY": "/nowhere/shm"}, "/dev/shm", CheckVerdict.FAIL),
    ({f"{MACHINE}.count_gpus": lambda: 2, "torch.cuda.is_available": lambda: False},
     "gpu", CheckVerdict.FAIL),
]  # fmt: skip


def test_what_is_so_of_a_machine_is_told(monkeypatch, wording):
    monkeypatch.setattr(checks, "NEEDED", ())
    monkeypatch.setattr("distrain.loader.parquet_pages.leaves.BUILT", True)
    for facts, name, verdict in MACHINE_FACTS:
        with monkeypatch.context() as patch:
            for place, value in facts.items():
                patch.setattr(place, value)
            found = by_name(check_machine())[name]
        assert found.verdict is verdict, (facts, found)
        if verdict is not CheckVerdict.OK:
            wording(f"{name}: {found.detail}\n{found.mend}", torch=torch.__version__)
    monkeypatch.setenv("DISTRAIN_PAGES", "0")
    found = by_name(check_machine())["page decoder"]
    assert (found.verdict, found.detail) == (CheckVerdict.NOTE, "off: DISTRAIN_PAGES is 0")


def test_a_look_that_fails_is_a_finding_and_the_others_go_on(monkeypatch):
    monkeypatch.setattr(checks, "NEEDED", ())
    before = len(list(check_machine()))
    for look in ("_same_dask", "_cores", "_memory", "_shared_memory", "_gpus"):
        with monkeypatch.context() as patch:
            patch.setattr(checks, look, Mock(side_effect=RuntimeError("no luck")))
            found = list(check_machine())
        assert len(found) == before
        (odd,) = [check for check in found if "no luck" in check.detail]
        assert odd.verdict is CheckVerdict.FAIL


def test_a_folder_that_can_be_written_and_ones_that_cannot(tmp_path, wording):
    found = check_write_access(tmp_path / "runs")
    assert (found.verdict, found.detail) == (CheckVerdict.OK, str(tmp_path / "runs"))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file" / "runs", tmp_path / "a\0b"):
        found = check_write_access(folder)
        assert found.verdict is CheckVerdict.FAIL
    wording(check_write_access(tmp_path / "file" / "runs").mend)
