"""SQLite's file while a service has it open: read-only at first, removed, replaced."""

import os

import pytest
from waiting import until

from distrain.errors import Unavailable
from distrain.service.settings import Settings
from distrain.service.store.store import migrate, open_store


def _writes(store) -> bool:
    try:
        store.keep_fact("a", "1")
    except Unavailable:
        return False
    return True


@pytest.mark.skipif(os.getuid() != 0, reason="starts a process as another user")
def test_a_store_that_was_opened_read_only_writes_as_soon_as_it_can(tmp_path):
    settings = Settings(data_dir=tmp_path)
    migrate(settings)
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(0o755)
    with open_store(settings, single=False) as owner:
        owner.keep_fact("b", "1")  # so that SQLite's shared memory is there
        for file in tmp_path.iterdir():
            file.chmod(0o644)
        refused, refuses = os.pipe()
        child = os.fork()
        if child == 0:  # a user who may only read
            code = 1
            try:
                os.setgid(65534)
                os.setuid(65534)
                with open_store(settings, single=False) as other:
                    if not any(_writes(other) for _ in range(3)):
                        os.write(refuses, b"1")
                        until(lambda: _writes(other))
                        code = 0
            finally:
                os._exit(code)
        os.close(refuses)
        assert os.read(refused, 1) == b"1"
        tmp_path.chmod(0o777)
        for file in tmp_path.iterdir():
            file.chmod(0o666)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_that_is_not_at_its_path_any_more_is_not_written(tmp_path, is_replaced):
    settings = Settings(data_dir=tmp_path / "data")
    (tmp_path / "data").mkdir()
    migrate(settings)
    copy = tmp_path / "copy.db"
    with open_store(settings) as store:
        store.backup(copy)
        for file in settings.data_dir.glob("service.db*"):
            file.unlink()
        if is_replaced:
            copy.rename(settings.data_dir / "service.db")
        with pytest.raises(Unavailable) as caught:
            store.keep_fact("a", "1")
        with pytest.raises(Unavailable):
            store.check()  # as /readyz does
        with pytest.raises(Unavailable):
            store.report_ages_s()  # as the metrics do
        assert caught.value.where == {"database": str(settings.data_dir / "service.db")}
        assert (settings.data_dir / "service.db").exists() is is_replaced
