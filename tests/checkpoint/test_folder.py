"""What a checkpoint refuses, and what it takes over."""

import json

import pytest
import torch

from distrain.checkpoint import load_folder, save_folder
from distrain.checkpoint.folder import MANIFEST_FILE, TENSORS_FILE, read_values
from distrain.embeddings import Peers
from distrain.errors import DataError, OutputError

CPU = torch.device("cpu")


def some_tensors(seed):
    generator = torch.Generator().manual_seed(seed)
    return {
        "wide": torch.randn(40, 3, generator=generator, dtype=torch.float64),
        "half": torch.randn(9, 2, generator=generator).bfloat16(),
        "step": torch.tensor(float(seed)),
        "none": torch.zeros(0, 4),
    }


def equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in one | other)


@pytest.fixture
def saved(tmp_path):
    folder = tmp_path / "state"
    save_folder(folder, some_tensors(1), {"step": 7, "lr": 0.1}, peers=Peers(), device=CPU)
    return folder


def refused(saved, tensors=None):
    """The error, and that nothing changed before it was found."""
    with pytest.raises(DataError) as caught:
        load_folder(saved, tensors or some_tensors(2))
    return caught.value


def test_round_trip(saved):
    tensors = some_tensors(2)
    assert load_folder(saved, tensors) == {"step": 7, "lr": 0.1}
    assert equal(tensors, some_tensors(1))
    assert read_values(saved) == {"step": 7, "lr": 0.1}


def test_an_existing_folder_is_replaced_only_on_request(saved):
    with pytest.raises(OutputError, match="exists already"):
        save_folder(saved, some_tensors(3), {}, peers=Peers(), device=CPU)
    save_folder(saved, some_tensors(3), {}, peers=Peers(), device=CPU, replace=True)
    tensors = some_tensors(1)
    assert load_folder(saved, tensors) == {}
    assert equal(tensors, some_tensors(3))


def test_missing_folder_and_files(saved):
    assert "no such checkpoint" in str(refused(saved.with_name("nosuch")))
    for name in (TENSORS_FILE, MANIFEST_FILE):
        (saved / name).rename(saved / "away")
        error = refused(saved)
        assert f"lacks {name}" in str(error)
        assert error.where["file"] == str(saved / name)
        (saved / "away").rename(saved / name)


@pytest.mark.parametrize("name", [TENSORS_FILE, MANIFEST_FILE])
@pytest.mark.parametrize("keep", [0, 5, 200, -1])
def test_truncated_files(saved, name, keep):
    file = saved / name
    # The manifest's last byte is the end of its last line, which says nothing.
    file.write_bytes(file.read_bytes()[: keep - (keep < 0)])
    tensors = some_tensors(2)
    assert refused(saved, tensors).where["file"] == str(file)
    assert equal(tensors, some_tensors(2))


def test_any_flipped_byte_of_the_tensors_is_noticed(saved):
    file = saved / TENSORS_FILE
    whole = file.read_bytes()
    for place in range(0, len(whole), 11):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        assert refused(saved).where["file"] == str(file), place
    start = len(whole) - 9 * 2 * 2
    file.write_bytes(whole[:start] + bytes([whole[start] ^ 1]) + whole[start + 1 :])
    assert refused(saved).where == {"file": str(file), "tensor": "half"}


def test_any_flipped_byte_of_the_manifest_is_noticed(saved):
    file = saved / MANIFEST_FILE
    whole = file.read_bytes()
    for place in range(0, len(whole) - 1, 11):
        if whole[place : place + 1].isspace():
            continue
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert refused(saved).where["file"] == str(file), place


def test_files_of_two_checkpoints_do_not_fit(saved, tmp_path):
    others = some_tensors(1) | {"half": torch.zeros(9, 2)}
    save_folder(tmp_path / "other", others, {}, peers=Peers(), device=CPU)
    (tmp_path / "other" / TENSORS_FILE).rename(saved / TENSORS_FILE)
    assert "half is F32 [9, 2], the manifest says BF16 [9, 2]" in str(refused(saved))


def test_other_tensors_are_told_and_nothing_is_changed(saved):
    tensors = some_tensors(2)
    tensors["wide"] = torch.zeros(41, 3, dtype=torch.float64)
    tensors["new"] = tensors.pop("step")
    text = str(refused(saved, tensors))
    assert "wide is F64 [40, 3], this training needs F64 [41, 3]" in text
    assert "new is missing, this training needs F32 []" in text
    assert "step is F32 [], this training needs no such tensor" in text
    assert torch.equal(tensors["half"], some_tensors(2)["half"])


def test_newer_formats_and_other_files_are_refused(saved):
    file = saved / MANIFEST_FILE
    manifest = json.loads(file.read_text())
    file.write_text(json.dumps(manifest | {"format": 2}))
    assert "saved in format 2" in str(refused(saved))
    file.write_text("[1]")
    assert "not the manifest of a checkpoint" in str(refused(saved))
