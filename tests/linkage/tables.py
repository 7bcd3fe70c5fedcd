"""Tables of candidate pairs for tests, and what a run has written."""

import numpy as np


def many_pairs(rng, num, scale=3.0):
    """Columns of about ``num`` pairs in small components, with Splink's names and one more."""
    left = rng.integers(0, num, 2 * num)
    right = left + rng.integers(0, 3, 2 * num)
    keys = np.unique(left * 10 * num + right)
    keys = rng.permutation(keys[rng.random(len(keys)) < 0.5])
    left, right = np.divmod(keys, 10 * num)
    return {
        "match_weight": rng.normal(0.0, scale, len(keys)),
        "unique_id_l": [f"a{k}" for k in left],
        "unique_id_r": [f"b{k}" for k in right],
        "town": rng.choice(["Bonn", "Kiel"], len(keys)).tolist(),
    }


def contents(folder):
    """All files of a folder by name, as bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
