"""What an installed voicepipe holds besides its code."""

import tomllib
from fnmatch import fnmatch
from pathlib import Path


def test_data_files_are_shipped(root: Path) -> None:
    """A file beside the code that no pattern of pyproject.toml names would work in a clone and be missing elsewhere."""
    patterns = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["*"]
    files = [path for path in (root / "voicepipe").rglob("*.*") if path.is_file() and "__pycache__" not in path.parts]
    data = [path for path in files if path.suffix not in {".py", ".pyi", ".so"}]
    assert any(path.suffix == ".onnx" for path in data)  # the looking works
    left = [str(path) for path in data if not any(fnmatch(path.name, pattern) for pattern in patterns)]
    assert left == []
