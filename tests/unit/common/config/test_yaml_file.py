from collections.abc import Mapping
from pathlib import Path

import pytest

from waltz.common.config.yaml_file import read_yaml
from waltz.common.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "found"), [("", {}), ("# nothing", {}), ("a.b: 1\nc: {d: x}", {"a.b": 1, "c": {"d": "x"}})]
)
def test_files(tmp_path: Path, text: str, found: Mapping[str, object]) -> None:
    path = tmp_path / "file.yml"
    path.write_text(text)
    assert read_yaml(path) == found


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"a: 1\na: 2", "line 2: not valid YAML: key 'a' is given twice"),
        (b"a: [", "not valid YAML"),
        (b"a:\n\tb: 1", "line 2: not valid YAML: found a tab; indent with spaces"),
        (b"- a", "expected lines of the form 'key: value', found"),
        (b"\xff", "is not a text file in UTF-8"),
        (b"#" * ((1 << 20) + 1), "has more than 1048576 bytes"),
    ],
)
def test_files_that_are_no_configuration(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "file.yml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=complaint):
        read_yaml(path)


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^cannot read configuration file {tmp_path}: Is a directory$"):
        read_yaml(tmp_path)
