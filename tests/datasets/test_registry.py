"""Where files are looked for; nothing is downloaded here."""

import hashlib
import re

import pooch
import pytest

from permvi.datasets import registry

NAME = "celegans/NeuronConnect.csv"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and no local folder."""
    monkeypatch.delenv(registry.FOLDER, raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache")
    return tmp_path / "cache"


def serve(monkeypatch, content):
    """Let downloads write ``content``."""

    def download(url, output_file, pooch_object):
        with open(output_file, "wb") as file:
            file.write(content)

    monkeypatch.setattr(pooch.core, "choose_downloader", lambda url, **_: download)


def test_the_local_folder_comes_first(tmp_path, monkeypatch):
    (tmp_path / "celegans").mkdir()
    (tmp_path / NAME).write_text("mine")
    monkeypatch.setenv(registry.FOLDER, str(tmp_path))
    assert registry.find(NAME).read_text() == "mine"


def test_what_is_not_there_is_downloaded_once_and_checked(cache, monkeypatch):
    content = b"from,to\n"
    entry = registry.FILES[NAME]
    known = registry.DataFile(
        entry.url, hashlib.sha256(content).hexdigest(), entry.licence, entry.source
    )
    monkeypatch.setitem(registry.FILES, NAME, known)
    serve(monkeypatch, content)
    assert registry.find(NAME) == cache / NAME
    serve(monkeypatch, b"never asked for")
    assert registry.find(NAME).read_bytes() == content


def test_a_wrong_checksum_is_refused(cache, monkeypatch):
    serve(monkeypatch, b"something else")
    with pytest.raises(ValueError, match="SHA256"):
        registry.find(NAME)
    assert not (cache / NAME).exists()


def test_without_a_connection_one_sentence_says_where_to_put_it(cache, monkeypatch):
    def offline(url, **_):
        raise ConnectionError("no network")

    monkeypatch.setattr(pooch.core, "choose_downloader", offline)
    with pytest.raises(FileNotFoundError, match=r"below the folder \$PERMVI_DATA") as caught:
        registry.find(NAME)
    assert "\n" not in str(caught.value)


def test_unknown_files_get_a_suggestion():
    with pytest.raises(ValueError, match=f"mean '{NAME}'"):
        registry.find("celegans/NeuronConect.csv")


def test_every_file_has_a_checksum_a_source_and_a_licence():
    for name, entry in registry.FILES.items():
        assert re.fullmatch("[0-9a-f]{64}", entry.sha256), name
        assert entry.url.startswith("https://")
        assert entry.source
        assert entry.licence
