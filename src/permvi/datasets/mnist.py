"""The MNIST digits (LeCun et al. 1998), from their original idx files."""

import gzip
import hashlib
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from permvi.datasets.registry import FILES, find

_UNSIGNED_BYTES = 0x08
_PARTS = {"train": "train", "test": "t10k"}


@dataclass(frozen=True, eq=False)
class Digits:
    """Images of digits and their labels.

    Attributes:
        train_images: (n, height, width) bytes, 0 for the background.
        train_labels: (n,) digits.
        test_images: (m, height, width) bytes.
        test_labels: (m,) digits.
    """

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray

    def __repr__(self) -> str:
        return f"Digits({len(self.train_images)} to train on, {len(self.test_images)} to test)"


def mnist() -> Digits:
    """Load the 60,000 training and 10,000 test images of MNIST, 28 by 28 pixels.

    Raises:
        ValueError: A file does not have the checksum of the original, or is not an idx file.
        FileNotFoundError: A file is missing and could not be downloaded.

    References:
        LeCun, Bottou, Bengio, Haffner (1998). Gradient-based learning applied to document
        recognition. Proceedings of the IEEE 86.
    """
    arrays = {}
    for part, stem in _PARTS.items():
        arrays[f"{part}_images"] = _checked(f"mnist/{stem}-images-idx3-ubyte.gz")
        arrays[f"{part}_labels"] = _checked(f"mnist/{stem}-labels-idx1-ubyte.gz")
        if len(arrays[f"{part}_images"]) != len(arrays[f"{part}_labels"]):
            raise ValueError(f"MNIST must have a label for each {part} image, got another number.")
    return Digits(**arrays)


def read_idx(path: Path) -> np.ndarray:
    """Read the array of a gzipped idx file of unsigned bytes, with any number of axes.

    Such a file has two zero bytes, the code of the type, the number of axes, the length of each
    axis as a big-endian integer of four bytes, and the entries in C order.

    Raises:
        ValueError: The file has another format, or more or fewer entries than it states.
    """
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path.name} must be a gzipped file, got one that is not: {error}."
        ) from None
    if len(content) < 4 or content[:3] != bytes([0, 0, _UNSIGNED_BYTES]):
        raise ValueError(
            f"{path.name} must be an idx file of unsigned bytes, got one that begins with "
            f"{content[:4].hex(' ')!r}."
        )
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise ValueError(f"{path.name} must state the lengths of {content[3]} axes, got fewer.")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise ValueError(
            f"{path.name} must hold {math.prod(shape)} entries of an array of shape {shape}, "
            f"got {len(content) - start}."
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _checked(name: str) -> np.ndarray:
    path = find(name)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != FILES[name].sha256:
        raise ValueError(
            f"{path.name} must have the SHA-256 checksum {FILES[name].sha256[:12]}..., "
            f"got {found[:12]}...; the file is damaged or a different one."
        )
    return read_idx(path)
