"""The images that the autoencoders are trained and scored on."""

from typing import NamedTuple

import numpy as np

from permvi import datasets

VALIDATION = 5000
"""Number of the last training images that are set aside when settings are chosen."""

SHAPES = {"mnist": (28, 28), "generated": (14, 10)}
"""Rows and columns of the images."""

# Rows of three pixels for the digits from 0 to 9, as in the display of a pocket calculator.
_GLYPHS = (
    "111101101101111",
    "001001001001001",
    "111001111100111",
    "111001111001111",
    "101101111001001",
    "111100111001111",
    "111100111101111",
    "111001001001001",
    "111101111101111",
    "111101111001111",
)
_GENERATED = {"train": 2000, "test": 200}


class Images(NamedTuple):
    """Images as bytes, and the digits of the test images."""

    train: np.ndarray  # (images, pixels)
    test: np.ndarray  # (images, pixels)
    test_labels: np.ndarray  # (images,) digits


def load(name: str) -> Images:
    """Load "mnist", "validation", or "generated": small images that need no data.

    "validation" has the training images of MNIST, with the last 5000 of them as test images.
    """
    if name == "generated":
        return _generated()
    digits = datasets.mnist()
    train, test, labels = digits.train_images, digits.test_images, digits.test_labels
    if name == "validation":
        train, test = train[:-VALIDATION], train[-VALIDATION:]
        labels = digits.train_labels[-VALIDATION:]
    return Images(train.reshape(len(train), -1), test.reshape(len(test), -1), labels)


def _generated() -> Images:
    """Draw calculator digits, shifted at random, of random brightness, on a noisy background."""
    rng = np.random.default_rng(0)
    total = sum(_GENERATED.values())
    labels = rng.integers(10, size=total)
    glyphs = np.array([[int(pixel) for pixel in glyph] for glyph in _GLYPHS]).reshape(10, 5, 3)
    large = glyphs.repeat(2, axis=1).repeat(2, axis=2)
    height, width = SHAPES["generated"]
    pixels = rng.uniform(0, 0.1, (total, height, width))
    places = rng.integers([height - 9, width - 5], size=(total, 2))
    for image, label, (row, column), level in zip(
        pixels, labels, places, rng.uniform(0.7, 1, total), strict=True
    ):
        image[row : row + 10, column : column + 6] += 0.9 * level * large[label]
    images = (255 * pixels.clip(0, 1)).astype(np.uint8).reshape(total, -1)
    count = _GENERATED["train"]
    return Images(images[:count], images[count:], labels[count:])
