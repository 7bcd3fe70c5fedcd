"""Bad input to the exact engine is answered in one sentence."""

import re

import numpy as np
import pytest

from permvi.inference.exact import enumerate_log_density, k_best, solve_exact

ZEROS = np.zeros((3, 3))


def scores_with(value):
    scores = np.zeros((3, 3))
    scores[1, 2] = value
    return scores


BAD = {
    "1-d": ({"scores": np.zeros(3)}, r"scores must have shape \(n, m\).*got shape \(3,\)"),
    "empty": ({"scores": np.zeros((0, 3))}, r"scores must have shape \(n, m\).*\(0, 3\)"),
    "nan": ({"scores": scores_with(np.nan)}, "scores must be finite.*got nan at row 1, column 2"),
    "inf": ({"scores": scores_with(np.inf)}, "scores must be finite.*got inf at row 1, column 2"),
    "mask-shape": (
        {"scores": ZEROS, "mask": np.ones((3, 2), dtype=bool)},
        r"mask must have the shape \(3, 3\) of scores, got \(3, 2\)",
    ),
    "known-shape": (
        {"scores": ZEROS, "known": [0, 1]},
        r"known must have shape \(..., 3\), got shape \(2,\)",
    ),
    "known-2d": (
        {"scores": ZEROS, "known": [[0, 1, 2]]},
        r"known must have shape \(3,\), got shape \(1, 3\)",
    ),
    "known-range": (
        {"scores": ZEROS, "known": [3, -1, -1]},
        "known must hold columns 0 to 2 or -1, got 3",
    ),
    "known-twice": (
        {"scores": ZEROS, "known": [1, 1, -1]},
        "known must use each column at most once, got column 1 twice",
    ),
    "known-masked": (
        {"scores": ZEROS, "mask": ~np.eye(3, dtype=bool), "known": [0, -1, -1]},
        "known must respect mask and scores, got the forbidden pair of row 0 and column 0",
    ),
    "unmatched-shape": (
        {"scores": ZEROS, "row_unmatched": [0.0, 1.0]},
        r"row_unmatched must be a scalar or have shape \(3,\), got \(2,\)",
    ),
    "unmatched-nan": (
        {"scores": ZEROS, "col_unmatched": np.nan},
        "col_unmatched must be finite, or -inf .*, got nan",
    ),
    "stuck-row": (
        {"scores": ZEROS, "mask": np.array([[1, 1, 1], [0, 0, 0], [1, 1, 1]], dtype=bool)},
        "got none: row 1 has to be matched and has no allowed column",
    ),
    "stuck-col": (
        {"scores": ZEROS, "mask": np.array([[1, 1, 0], [1, 1, 0], [1, 1, 0]], dtype=bool)},
        "got none: column 2 has to be matched and has no allowed row",
    ),
    "hall": (
        {"scores": ZEROS, "mask": np.array([[1, 0, 0], [1, 0, 0], [1, 1, 1]], dtype=bool)},
        "got none: rows or columns that have to be matched share too few partners",
    ),
    "too-few-columns": (
        {"scores": np.zeros((3, 2)), "row_unmatched": -np.inf},
        "got none: rows or columns that have to be matched share too few partners",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_problems_are_refused_alike(name):
    problem, match = BAD[name]
    for call in (lambda **kw: solve_exact(**kw), lambda **kw: k_best(k=2, **kw)):
        with pytest.raises(ValueError, match=match) as info:
            call(**problem)
        assert one_sentence(str(info.value))


@pytest.mark.parametrize(
    ("problem", "match"),
    [
        ({"scores": np.zeros((3, 3), dtype=complex)}, "scores must be an array of real numbers"),
        ({"scores": [["a", "b"], ["c", "d"]]}, "scores must be an array of real numbers"),
        ({"scores": ZEROS, "mask": np.ones((3, 3))}, "mask must be a boolean array, got dtype fl"),
        ({"scores": ZEROS, "known": [0.0, -1.0, -1.0]}, "known must be an integer array"),
        ({"scores": ZEROS, "max_size": 3.0}, "max_size must be an integer, got 3.0"),
    ],
)
def test_wrong_types_are_refused(problem, match):
    with pytest.raises(TypeError, match=match):
        solve_exact(**problem)


def test_large_blocks_are_refused_with_an_estimate(rng):
    with pytest.raises(ValueError, match="max_size=22") as info:
        solve_exact(rng.normal(size=(23, 23)), max_size=22)
    message = str(info.value)
    assert re.search(
        r"block of 23 by 23 that would need about 0\.12 GiB and [\d.]+ seconds", message
    )
    assert "pass max_size=23 or use method='linear'" in message
    assert one_sentence(message)
    with pytest.raises(ValueError, match=r"block of 60 by 61 .* years; use method='linear'"):
        solve_exact(rng.normal(size=(60, 61)))
    with pytest.raises(ValueError, match=r"1100 by 1100 .* than any computer has; use"):
        solve_exact(np.zeros((1100, 1100)))
    with pytest.raises(ValueError, match=r"block of 9 by 12 .* pass max_size=9"):
        solve_exact(rng.normal(size=(9, 12)), row_unmatched=0.0, method="dp", max_size=8)
    assert solve_exact(rng.normal(size=(2, 60))).block_sizes == ((2, 60),)


def test_other_limits():
    with pytest.raises(ValueError, match="max_size must be at most 24, got 25"):
        solve_exact(ZEROS, max_size=25)
    with pytest.raises(
        ValueError, match="method must be one of 'auto', 'dp', 'enumeration', got 'no'"
    ):
        solve_exact(ZEROS, method="no")
    with pytest.raises(ValueError, match=r"enumeration takes at most 2,000,000 .* 10 rows and 10"):
        solve_exact(np.zeros((10, 10)), method="enumeration")
    with pytest.raises(ValueError, match="k must be an integer of at least 1, got 0"):
        k_best(ZEROS, 0)


@pytest.mark.parametrize(
    ("density", "match"),
    [
        (lambda perms: np.zeros(len(perms) + 1), r"log_density must map \(6, 3\) .* got shape"),
        (lambda perms: np.full(len(perms), np.nan), r"log_density must be .* got nan at \[0, 1, 2"),
        (lambda perms: np.full(len(perms), np.inf), "log_density must be finite or -inf, got inf"),
        (lambda perms: np.full(len(perms), -np.inf), "log_density must be finite for some"),
    ],
)
def test_bad_densities_are_refused(density, match):
    with pytest.raises(ValueError, match=match):
        enumerate_log_density(density, 3)


def test_enumeration_limits():
    with pytest.raises(ValueError, match=r"10 rows and 10 columns with up to 3.63e\+06"):
        enumerate_log_density(lambda perms: np.zeros(len(perms)), 10)
    with pytest.raises(ValueError, match="fit into 62 bits, got 1000 and 2"):
        enumerate_log_density(lambda perms: np.zeros(len(perms)), 1000, 2)
    with pytest.raises(ValueError, match="must leave a feasible matching, got none"):
        enumerate_log_density(
            lambda perms: np.zeros(len(perms)), 2, mask=np.array([[True, False], [True, False]])
        )


def one_sentence(message):
    return message.endswith(".") and not re.search(r"\.\s", message) and "\n" not in message
