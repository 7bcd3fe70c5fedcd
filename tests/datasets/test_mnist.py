"""MNIST: idx files, checksums, and the real data where it is."""

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from permvi import datasets
from permvi.datasets.mnist import read_idx
from permvi.datasets.registry import FILES, FOLDER

SHARED = Path(__file__).parents[3] / "shared" / "data"


def write_idx(path, array, *, kind=8, content=None):
    head = bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(head + (array.tobytes() if content is None else content)))


@pytest.mark.parametrize("shape", [(7,), (2, 3, 4)])
def test_idx_files_are_read_as_they_were_written(tmp_path, rng, shape):
    array = rng.integers(256, size=shape, dtype=np.uint8)
    write_idx(tmp_path / "file.gz", array)
    np.testing.assert_array_equal(read_idx(tmp_path / "file.gz"), array)


def test_other_files_are_refused(tmp_path):
    path, array = tmp_path / "file.gz", np.zeros((2, 3), np.uint8)
    path.write_bytes(b"no gzip")
    with pytest.raises(ValueError, match=r"file\.gz must be a gzipped file"):
        read_idx(path)
    write_idx(path, array, kind=9)
    with pytest.raises(ValueError, match="unsigned bytes, got one that begins with '00 00 09 02'"):
        read_idx(path)
    write_idx(path, array, content=b"12345")
    with pytest.raises(ValueError, match=r"6 entries of an array of shape \(2, 3\), got 5"):
        read_idx(path)
    path.write_bytes(gzip.compress(bytes([0, 0, 8, 3, 0])))
    with pytest.raises(ValueError, match="lengths of 3 axes"):
        read_idx(path)
    path.write_bytes(gzip.compress(array.tobytes() * 9)[:-9])
    with pytest.raises(ValueError, match="gzipped"):
        read_idx(path)


def test_a_file_with_another_checksum_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    (tmp_path / "mnist").mkdir()
    write_idx(tmp_path / "mnist" / "train-images-idx3-ubyte.gz", np.zeros((1, 2, 2), np.uint8))
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte\.gz must have the SHA-256"):
        datasets.mnist()


def test_the_real_digits(monkeypatch):
    folder = Path(os.environ.get(FOLDER, SHARED))
    if not all((folder / name).exists() for name in FILES if name.startswith("mnist/")):
        pytest.skip("MNIST is not below $PERMVI_DATA")
    monkeypatch.setenv(FOLDER, str(folder))
    digits = datasets.mnist()
    assert repr(digits) == "Digits(60000 to train on, 10000 to test)"
    assert digits.train_images.shape == (60_000, 28, 28)
    # The first ten digits of each part, as every tutorial shows them.
    assert digits.train_labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert digits.test_labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert digits.train_images.mean() / 255 == pytest.approx(0.1307, abs=5e-5)
