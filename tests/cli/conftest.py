import pytest
from typer.testing import CliRunner

from permvi import cli


@pytest.fixture
def run():
    """Run a command in this process; arguments may be anything that has a text."""
    runner = CliRunner()
    return lambda *args: runner.invoke(cli.app, [str(arg) for arg in args])


@pytest.fixture
def write(tmp_path):
    """Write a file, as text or as bytes, and return its path."""

    def write_file(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file
