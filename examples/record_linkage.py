"""Link two lists of people with typing errors, duplicates and people who are in one list only.

Pairs of records are compared field by field. The model of Fellegi and Sunter (1969) turns the
comparisons into log odds of a match; EM estimates its probabilities without any labelled pairs. The
log odds are the scores of a partial matching, in which every record of one list has at most one
partner in the other.

One list also has some people twice. A matching can assign only one copy to a person, so the copies
would share the probability. Copies are therefore found first, by the same log odds within the list,
and joined to one label. Run ``python examples/record_linkage.py``.

References:
    Fellegi, Sunter (1969). A theory for record linkage. JASA 64.
"""
# ruff: noqa: T201

import argparse
import string
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

import permvi as pv
from permvi import metrics

FIRST = ["Anna", "Anne", "Bert", "Carl", "Clara", "Dora", "Emil", "Emilia", "Fritz", "Greta"]
FIRST += ["Hanna", "Hannes", "Jan", "Jana", "Karl", "Karla", "Lena", "Max", "Nora", "Otto"]
FIRST += ["Paul", "Paula", "Rosa", "Rudi", "Tom", "Vera"]
LAST = ["Adler", "Bauer", "Beck", "Braun", "Engel", "Fischer", "Frank", "Graf", "Gruber", "Huber"]
LAST += ["Keller", "Koch", "Lang", "Lorenz", "Maier", "Mayer", "Otto", "Peters", "Roth", "Schmidt"]
LAST += ["Schmitt", "Schulz", "Sommer", "Vogel", "Wagner", "Weber", "Wolf", "Ziegler"]
TOWNS = ("Bonn", "Celle", "Jena", "Kiel", "Mainz", "Trier")
FIELDS = ("first name", "last name", "birth year", "town")
# Two texts are similar if the ratio of difflib.SequenceMatcher is at least this.
SIMILAR = 0.7
# A pair is left out if one of its records has a pair that is this many nats better, or is this much
# better unmatched. The remaining pairs split into small blocks.
GATE = 4.0


class Record(NamedTuple):
    """One line of a list, and the number of the person that it describes."""

    fields: tuple[str, str, int, str]
    person: int


def with_typo(word: str, rng: np.random.Generator) -> str:
    """Return the word with one letter replaced."""
    place = rng.integers(1, len(word))
    return word[:place] + rng.choice(list(string.ascii_lowercase)) + word[place + 1 :]


def copy_of(record: Record, rng: np.random.Generator) -> Record:
    """Return another record of the same person, with random errors."""
    first, last, year, town = record.fields
    if rng.random() < 0.2:
        first = with_typo(first, rng)
    if rng.random() < 0.2:
        last = with_typo(last, rng)
    if rng.random() < 0.1:
        year += int(rng.choice([-1, 1]))
    if rng.random() < 0.15:
        town = str(rng.choice(TOWNS))
    return Record((first, last, year, town), record.person)


def make_lists(num: int, seed: int = 0) -> tuple[list[Record], list[Record]]:
    """Return two lists; a fifth of each is not in the other, and the second has duplicates."""
    rng = np.random.default_rng(seed)
    people = [
        Record(
            (
                str(rng.choice(FIRST)),
                str(rng.choice(LAST)),
                int(rng.integers(1940, 2000)),
                str(rng.choice(TOWNS)),
            ),
            person,
        )
        for person in range(num + num // 5)
    ]
    left = [copy_of(record, rng) for record in people[:num]]
    right = [copy_of(record, rng) for record in people[num // 5 :]]
    right += [copy_of(record, rng) for record in people[num // 2 : num // 2 + num // 6]]
    return left, right


def compare(a: Record, b: Record) -> list[int]:
    """Return 0 (different), 1 (similar) or 2 (the same) for each field."""
    levels = []
    for x, y in zip(a.fields, b.fields, strict=True):
        if x == y:
            levels.append(2)
        elif isinstance(x, int) and isinstance(y, int):
            levels.append(int(abs(x - y) <= 1))
        else:
            levels.append(int(SequenceMatcher(None, str(x), str(y)).ratio() >= SIMILAR))
    return levels


def compare_all(left: list[Record], right: list[Record]) -> np.ndarray:
    """Return (n, m, fields) comparisons of all pairs."""
    return np.array([[compare(a, b) for b in right] for a in left])


class FellegiSunter(NamedTuple):
    """Probabilities of comparisons, for matches and for other pairs.

    Attributes:
        p_match: The fraction of matches among all pairs.
        match: (fields, 3) probabilities of each comparison for a match.
        other: (fields, 3) probabilities of each comparison for any other pair.
    """

    p_match: float
    match: np.ndarray
    other: np.ndarray

    def evidence(self, levels: np.ndarray) -> np.ndarray:
        """Return (...) log likelihood ratios of pairs with comparisons (..., fields)."""
        weights = np.log(self.match / self.other)
        return weights[np.arange(len(weights)), levels].sum(axis=-1)

    def log_odds(self, levels: np.ndarray) -> np.ndarray:
        """Return (...) log odds that pairs match, each judged on its own."""
        return self.evidence(levels) + np.log(self.p_match / (1 - self.p_match))


def estimate(levels: np.ndarray, num_steps: int = 50) -> FellegiSunter:
    """Fit the model to comparisons (pairs, fields) by EM; fields are independent given a match."""
    num_pairs, num_fields = levels.shape
    shown = levels[..., None] == np.arange(3)
    usual = (shown.sum(axis=0) + 1) / (num_pairs + 3)

    def frequencies(weights: np.ndarray) -> np.ndarray:
        # Mixed with the overall frequencies, so that levels that were never seen are no evidence.
        return 0.99 * np.einsum("p,pfl->fl", weights / weights.sum(), shown) + 0.01 * usual

    agree = np.tile([0.1, 0.2, 0.7], (num_fields, 1))
    model = FellegiSunter(1 / np.sqrt(num_pairs), agree, usual)
    for _ in range(num_steps):
        matching = expit(model.log_odds(levels))
        model = FellegiSunter(matching.mean(), frequencies(matching), frequencies(1 - matching))
    return model


def find_copies(model: FellegiSunter, records: list[Record]) -> np.ndarray:
    """Return (m,) numbers from 0, equal for records of the same person in one list."""
    alike = model.log_odds(compare_all(records, records)) > 0
    return connected_components(alike, directed=False)[1]


def match(evidence: np.ndarray, num_steps: int = 5) -> np.ndarray:
    """Return exact (n, m) probabilities of pairs if every record has at most one partner.

    A pair now competes with two unmatched records, so its prior odds are the expected number of
    pairs over the number of ways to pair the unmatched records. Both depend on the matching, so
    the matching is repeated with updated odds.
    """
    n, m = evidence.shape
    expected = 0.5 * min(n, m)
    for _ in range(num_steps):
        scores = evidence + np.log(expected / ((n - expected) * (m - expected)))
        better = np.maximum(scores.max(axis=0), scores.max(axis=1, keepdims=True))
        mask = scores >= np.maximum(better, 0.0) - GATE
        model = pv.models.LinearMatching(scores, mask=mask, row_unmatched=0.0, col_unmatched=0.0)
        marginals = np.asarray(pv.fit(model, "exact").marginals)
        expected = marginals.sum()
    return marginals


def evaluate(marginals: np.ndarray, partners: np.ndarray) -> dict[str, float]:
    """Compare the links with probability above one half with the true ones.

    Args:
        marginals: (n, m) probabilities of pairs.
        partners: (n, m) booleans, True for pairs that are the same person.
    """
    linked = marginals > 0.5
    right = (linked & partners).sum()
    found = partners.any(axis=1)
    return {
        "precision": right / linked.sum(),
        "recall": (linked & partners).any(axis=1)[found].mean(),
        "ECE": metrics.calibration_error(marginals.max(axis=1), _best_is_true(marginals, partners)),
    }


def _best_is_true(marginals: np.ndarray, partners: np.ndarray) -> np.ndarray:
    return partners[np.arange(len(partners)), marginals.argmax(axis=1)]


def run(*, quick: bool = False) -> dict[str, dict[str, float]]:
    """Print the table and return its numbers by method."""
    left, right = make_lists(40 if quick else 120)
    levels = compare_all(left, right)
    model = estimate(levels.reshape(-1, len(FIELDS)))
    evidence = model.evidence(levels)
    same = np.array([[a.person == b.person for b in right] for a in left])

    # One label for each person; its score is that of the copy that fits best.
    copies = find_copies(model, right)
    members = [copies == label for label in range(copies.max() + 1)]
    joined = np.stack([evidence[:, of].max(axis=1) for of in members], axis=1)
    joined_same = np.stack([same[:, of].any(axis=1) for of in members], axis=1)

    results = {
        "pair by pair": evaluate(expit(model.log_odds(levels)), same),
        "one to one": evaluate(match(evidence), same),
        "one to one, copies joined": evaluate(match(joined), joined_same),
    }
    num_people = len({record.person for record in right})
    print(f"{len(left)} records against {len(right)}, which are {num_people} people")
    print(f"{len(members)} labels once copies are joined\n")
    print("field           different  similar  the same   (log odds)")
    for name, weights in zip(FIELDS, np.log(model.match / model.other), strict=True):
        print(f"{name:15} {weights[0]:9.1f}  {weights[1]:7.1f}  {weights[2]:8.1f}")
    print("\nlinks                      precision  recall    ECE")
    for name, row in results.items():
        print(f"{name:26} {row['precision']:9.3f}  {row['recall']:6.3f}  {row['ECE']:5.3f}")
    return results


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="Link two lists of people.")
    parser.add_argument("--quick", action="store_true", help="shorter lists")
    run(quick=parser.parse_args().quick)


if __name__ == "__main__":
    main()
