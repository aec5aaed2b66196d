import helm_values_text
import pytest
import yaml


def test_every_value_is_in_the_table():
    text = helm_values_text.VALUES.read_text()
    paths = {
        path
        for path, _ in helm_values_text.leaves(
            yaml.safe_load(text), helm_values_text.comments(text)
        )
    }
    shown = helm_values_text.sections()
    assert {"workers.gpu.perPod", "tls.existing.worker", "clusters"} <= paths
    assert [path for path in paths if f"`{path}`" not in shown] == []


def test_a_value_without_a_comment_is_told(tmp_path, monkeypatch):
    file = tmp_path / "values.yaml"
    file.write_text("a:\n  # -- Something.\n  b: 1\n  c: 2\n")
    monkeypatch.setattr(helm_values_text, "VALUES", file)
    with pytest.raises(LookupError, match=r"a\.c has no comment"):
        helm_values_text.sections()


def test_a_comment_has_several_lines():
    text = "a:\n  # -- One,\n  # two.\n  b: 1\n# Of nothing.\nc: 2\n"
    assert helm_values_text.comments(text) == {"a.b": "One, two."}
