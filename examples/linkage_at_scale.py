"""Link two registers with typing errors, moves, families and twins, and compare with the truth.

Two registers list people with first name, last name, date of birth and address. Most people are in
both, some in one only. Families share last names and addresses, and twins also the date of birth,
so that records compete for each other. Blocking proposes pairs, the model of Fellegi and Sunter
scores each pair by itself, as Splink does, and `permvi.match_pairs` makes the scores consistent
with one match for each record. The truth is known here, so that all probabilities can be checked.

Run ``python examples/linkage_at_scale.py``; with ``--write FOLDER`` it writes the pairs, with the
columns of Splink, and known pairs for ``permvi match --pairs``. With ``--splink`` Splink compares
and scores the records instead, if it is installed.

References:
    Fellegi, Sunter (1969). A theory for record linkage. JASA 64.
"""
# ruff: noqa: T201

import argparse
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit

import permvi as pv

sys.path.insert(0, str(Path(__file__).parent))
from record_linkage import FIRST, LAST, FellegiSunter, with_typo

MORE_FIRST = (
    "Adam Alma Ben Cora Dean Edda Ella Finn Gerd Hugo Ida Ilse Jens Jonas Kurt Lara Lea Leo"
)
MORE_FIRST += " Lotte Luis Maja Mia Mila Nils Olga Ole Pia Ralf Sara Sven Thea Tim Ute Uwe Zoe"
MORE_LAST = "Arndt Barth Berg Bohm Busch Dietz Ebert Ernst Fuchs Geiger Haas Hahn Hartmann Heinz"
MORE_LAST += " Herr Hoff Jung Kaiser Kern Kraus Kuhn Lange Link Marx Moser Nagel Noll Pohl Reich"
MORE_LAST += " Ritter Sauer Schwarz Seidel Stein Thiel Ulrich Voigt Winter Zimmer"
STREETS = "Bahnhofstr Dorfstr Feldweg Gartenstr Hauptstr Kirchweg Lindenallee Marktplatz Muehlweg"
STREETS += " Parkstr Ringstr Rosenweg Schulstr Seestr Talstr Uferweg Waldstr Wiesenweg"
FIELDS = ("first name", "household", "birth")
# Levels of comparisons.
DIFFERENT, SIMILAR, SAME = 0, 1, 2


class Register(NamedTuple):
    """Records as columns; ``person`` is the truth.

    Attributes:
        first: (n,) first names.
        last: (n,) last names.
        birth: (n, 3) year, month, day.
        address: (n, 2) number of the street, number of the house.
        person: (n,) the person that a record describes.
    """

    first: np.ndarray
    last: np.ndarray
    birth: np.ndarray
    address: np.ndarray
    person: np.ndarray

    def take(self, rows: np.ndarray) -> "Register":
        """Return some of the records."""
        return Register(*(column[rows] for column in self))


def make_people(num: int, rng: np.random.Generator) -> Register:
    """Return people in families; common names are more frequent, and some are twins."""
    first, last = (np.array(a + b.split()) for a, b in ((FIRST, MORE_FIRST), (LAST, MORE_LAST)))

    def popular(names: np.ndarray, count: int) -> np.ndarray:
        weights = 1.0 / np.arange(2, len(names) + 2)
        return rng.choice(names, count, p=weights / weights.sum())

    family = np.sort(rng.integers(0, max(num // 3, 1), num))
    surnames = popular(last, family.max() + 1)
    homes = np.stack([rng.integers(0, len(STREETS.split()), family.max() + 1),
                      rng.integers(1, 60, family.max() + 1)], axis=1)  # fmt: skip
    birth = np.stack([rng.integers(1935, 2012, num), rng.integers(1, 13, num),
                      rng.integers(1, 29, num)], axis=1)  # fmt: skip
    twin = np.flatnonzero((np.diff(family, prepend=-1) == 0) & (rng.random(num) < 0.04))
    birth[twin] = birth[twin - 1]
    return Register(popular(first, num), surnames[family], birth, homes[family], np.arange(num))


def with_errors(people: Register, rng: np.random.Generator) -> Register:
    """Return records of people as a clerk writes them."""
    num = len(people.person)
    first, last = people.first.astype(object).copy(), people.last.astype(object).copy()
    birth, address = people.birth.copy(), people.address.copy()
    for column, rate in ((first, 0.12), (last, 0.08)):
        for k in np.flatnonzero(rng.random(num) < rate):
            column[k] = with_typo(column[k], rng)
    for k in np.flatnonzero(rng.random(num) < 0.08):
        part = rng.integers(3)
        birth[k, part] = (rng.integers(1935, 2012), rng.integers(1, 13), rng.integers(1, 29))[part]
    moved = rng.random(num) < 0.2
    address[moved] = np.stack([rng.integers(0, len(STREETS.split()), moved.sum()),
                               rng.integers(1, 60, moved.sum())], axis=1)  # fmt: skip
    return Register(first, last, birth, address, people.person)


def make_registers(num: int, seed: int) -> tuple[Register, Register]:
    """Return two registers of ``num`` people, of whom a quarter is missing in each."""
    rng = np.random.default_rng(seed)
    people = make_people(num, rng)
    return tuple(
        with_errors(people.take(rng.permutation(num)[: 3 * num // 4]), rng) for _ in range(2)
    )  # type: ignore[return-value]


def blocked_pairs(a: Register, b: Register) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs that agree in one of three keys."""

    def keys(r: Register) -> list[list[Any]]:
        year, month, day = r.birth.T
        street, house = r.address.T
        return [
            list(zip((name[0] for name in r.first), year, month, day, strict=True)),
            list(zip(r.last, street, house, strict=True)),
            list(zip(r.first, r.last, year, month, strict=True)),
        ]

    found: set[tuple[int, int]] = set()
    for of_a, of_b in zip(keys(a), keys(b), strict=True):
        places: dict[Any, list[int]] = {}
        for k, key in enumerate(of_b):
            places.setdefault(key, []).append(k)
        found |= {(i, j) for i, key in enumerate(of_a) for j in places.get(key, ())}
    left, right = np.array(sorted(found)).T
    return left, right


@cache
def similar(a: str, b: str) -> bool:
    """Return whether two words differ by one letter."""
    return len(a) == len(b) and sum(x != y for x, y in zip(a, b, strict=True)) <= 1


def compare(a: Register, b: Register, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return (pairs, fields) comparisons: 0 different, 1 similar, 2 the same."""

    def names(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.array([
            SAME if s == t else SIMILAR if similar(s, t) else DIFFERENT
            for s, t in zip(x[left], y[right], strict=True)
        ])  # fmt: skip

    address = (a.address[left] == b.address[right]).all(axis=1)
    same_birth = (a.birth[left] == b.birth[right]).sum(axis=1)
    # Families share both last name and address, so these are one field: none, one or both.
    household = address.astype(int) + (names(a.last, b.last) != DIFFERENT)
    return np.stack([names(a.first, b.first), household, np.maximum(same_birth - 1, 0)], axis=1)


def estimate(levels: np.ndarray, at_random: np.ndarray, num_all: int) -> FellegiSunter:
    """Fit the model as Splink does: other pairs at random, matches by EM on the blocked pairs.

    Args:
        levels: (pairs, fields) comparisons of the blocked pairs, which have all matches.
        at_random: Comparisons of random pairs, hardly any of which match.
        num_all: The number of all pairs, blocked or not.
    """

    def frequencies(of: np.ndarray, weights: np.ndarray) -> np.ndarray:
        counts = [np.bincount(of[:, f], weights, 3) + 0.5 for f in range(of.shape[1])]
        return np.array([c / c.sum() for c in counts])

    other = frequencies(at_random, np.ones(len(at_random)))
    model = FellegiSunter(1e-4, np.tile([0.1, 0.1, 0.8], (levels.shape[1], 1)), other)
    for _ in range(50):
        p = expit(model.log_odds(levels))
        model = FellegiSunter(p.sum() / num_all, frequencies(levels, p), other)
    return model


class Candidates(NamedTuple):
    """Scored pairs: a table with Splink's columns, and whether each pair is a match."""

    table: dict[str, Any]
    match: np.ndarray


def make_candidates(num: int, seed: int, *, splink: bool = False) -> Candidates:
    """Generate two registers and score the pairs that blocking proposes."""
    a, b = make_registers(num, seed)
    if splink:
        return score_by_splink(a, b)
    left, right = blocked_pairs(a, b)
    levels = compare(a, b, left, right)
    sizes = len(a.person), len(b.person)
    rng = np.random.default_rng(seed)
    at_random = compare(a, b, *(rng.integers(size, size=300_000) for size in sizes))
    model = estimate(levels, at_random, sizes[0] * sizes[1])
    return _table(a, b, left, right, model.log_odds(levels) / np.log(2))


def _table(
    a: Register, b: Register, left: np.ndarray, right: np.ndarray, weights: np.ndarray
) -> Candidates:
    table = {
        "match_weight": weights,
        "unique_id_l": [f"a{k}" for k in left],
        "unique_id_r": [f"b{k}" for k in right],
        "name_l": [f"{x} {y}" for x, y in zip(a.first[left], a.last[left], strict=True)],
        "name_r": [f"{x} {y}" for x, y in zip(b.first[right], b.last[right], strict=True)],
    }
    return Candidates(table, a.person[left] == b.person[right])


def score_by_splink(a: Register, b: Register) -> Candidates:
    """Let Splink block, estimate and score; needs ``pip install splink``."""
    import pandas
    import splink.comparison_library as cl
    from splink import DuckDBAPI, Linker, SettingsCreator, block_on

    def frame(r: Register, prefix: str) -> Any:
        return pandas.DataFrame({
            "unique_id": [f"{prefix}{k}" for k in range(len(r.person))],
            "first": r.first.astype(str), "last": r.last.astype(str),
            "birth": [f"{y}-{m:02d}-{d:02d}" for y, m, d in r.birth],
            "address": [f"{s} {h}" for s, h in r.address],
        })  # fmt: skip

    settings = SettingsCreator(
        link_type="link_only",
        comparisons=[
            cl.NameComparison("first"),
            cl.NameComparison("last"),
            cl.LevenshteinAtThresholds("birth", 1),
            cl.ExactMatch("address"),
        ],
        blocking_rules_to_generate_predictions=[
            block_on("birth"),
            block_on("last", "address"),
            block_on("first", "last"),
        ],
    )
    database = DuckDBAPI()
    tables = [database.register(frame(*side)) for side in ((a, "a"), (b, "b"))]
    linker = Linker(tables, settings)
    rules = [block_on("first", "last", "birth")]
    linker.training.estimate_probability_two_random_records_match(rules, recall=0.6)
    linker.training.estimate_u_using_random_sampling(max_pairs=1e6)
    for rule in (block_on("birth"), block_on("first", "last")):
        linker.training.estimate_parameters_using_expectation_maximisation(rule)
    found = linker.inference.predict(threshold_match_probability=0.001).as_pandas_dataframe()
    # Splink may have the tables in either order.
    sides = [found["unique_id_l"], found["unique_id_r"]]
    if sides[0].iloc[0].startswith("b"):
        sides.reverse()
    left, right = (side.str[1:].astype(int).to_numpy() for side in sides)
    return _table(a, b, left, right, found["match_weight"].to_numpy())


def scores_of(p: np.ndarray, match: np.ndarray) -> dict[str, float]:
    """Return the mean log score (negative, in nats) and the Brier score; smaller is better."""
    inside = np.clip(p, 1e-12, 1 - 1e-12)
    return {
        "log score": float(-np.where(match, np.log(inside), np.log1p(-inside)).mean()),
        "Brier": float(((p - match) ** 2).mean()),
    }


def f1_at(p: np.ndarray, match: np.ndarray, threshold: float) -> float:
    """Return the true F1 of linking all pairs with at least this probability."""
    chosen = p >= threshold
    return float(2 * (chosen & match).sum() / max(chosen.sum() + match.sum(), 1))


def measure(seed: int, num: int = 6000, *, splink: bool = False) -> dict[str, Any]:
    """Link one generated pair of registers, and compare all that is claimed with the truth."""
    given = make_candidates(num, seed, splink=splink)
    match = given.match
    rng = np.random.default_rng(seed + 1)
    known = rng.random(len(match)) < 0.15
    names = ("unique_id_l", "unique_id_r")
    pairs = {n: np.array(given.table[n])[known] for n in names} | {"is_match": match[known] * 1}
    raw = pv.match_pairs(given.table).table()
    result = pv.match_pairs(given.table, calibrate=pairs)
    table = result.table()
    own, linked = raw["p_pair"].to_numpy(), raw["p_link"].to_numpy()
    fitted = table["p_link"].to_numpy()
    compete = np.zeros(len(match), bool)
    for name in names:
        _, codes = np.unique(given.table[name], return_inverse=True)
        compete |= np.bincount(codes)[codes] > 1
    test = compete & ~known
    # A fair opponent: the pairwise log odds, calibrated on the same known pairs.
    pairwise = expit(_logistic(logit(np.clip(own, 1e-12, 1 - 1e-12)), match, known))
    curve = _curve(fitted, match, result)
    best = max(f1_at(fitted, match, t) for t in np.unique(np.round(fitted, 4)))
    suggested = result.summary["suggested"]
    return {
        "seed": seed,
        "pairs": len(match),
        "matches": int(match.sum()),
        "competing": float(compete.mean()),
        "pair by pair": scores_of(own[test], match[test]),
        "pair by pair, calibrated": scores_of(pairwise[test], match[test]),
        "one to one": scores_of(linked[test], match[test]),
        "one to one, calibrated": scores_of(fitted[test], match[test]),
        "expected matches": result.summary["expected_matches"],
        "interval": result.summary["expected_matches_interval"],
        "worst precision error": curve[0],
        "worst recall error": curve[1],
        "F1 at suggested": f1_at(fitted, match, suggested["threshold"]),
        "best F1": best,
    }


def _logistic(x: np.ndarray, match: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return log odds a x + b that fit the known pairs, each by itself."""
    from scipy.optimize import minimize

    def loss(values: np.ndarray) -> float:
        z = values[0] * x[known] + values[1]
        return float(np.logaddexp(0.0, np.where(match[known], -z, z)).sum())

    slope, offset = minimize(loss, np.array([1.0, 0.0]), method="Nelder-Mead").x
    return slope * x + offset


def _curve(p: np.ndarray, match: np.ndarray, result: pv.Linkage) -> tuple[float, float]:
    """Return how far expected precision and recall are from the true ones, at worst."""
    lines = (result.folder / "thresholds.csv").read_text().splitlines()[1:]
    worst = [0.0, 0.0]
    for line in lines:
        threshold, links, precision, recall, _ = line.split(",")
        chosen = p >= float(threshold)
        # Among few links, the true precision is a matter of luck.
        if int(links) < 200:
            continue
        right = (chosen & match).sum()
        worst[0] = max(worst[0], abs(float(precision) - right / chosen.sum()))
        worst[1] = max(worst[1], abs(float(recall) - right / match.sum()))
    return worst[0], worst[1]


def run(*, quick: bool = False, splink: bool = False) -> dict[str, Any]:
    """Print how good the probabilities are, and return the numbers."""
    row = measure(0, 1500 if quick else 6000, splink=splink)
    print(f"{row['pairs']} candidate pairs, {row['matches']} of them matches; "
          f"{row['competing']:.0%} compete with another pair\n")  # fmt: skip
    print("competing pairs             log score    Brier")
    for name in (
        "pair by pair",
        "pair by pair, calibrated",
        "one to one",
        "one to one, calibrated",
    ):
        print(f"{name:26} {row[name]['log score']:10.4f} {row[name]['Brier']:8.4f}")
    low, high = row["interval"]
    print(f"\nexpected matches {row['expected matches']:.0f} (95 %: {low} to {high}), true "
          f"{row['matches']}")  # fmt: skip
    print(f"largest error of expected precision {row['worst precision error']:.3f}, of recall "
          f"{row['worst recall error']:.3f}")  # fmt: skip
    print(f"F1 at the suggested threshold {row['F1 at suggested']:.4f}, best {row['best F1']:.4f}")
    return row


def write(folder: Path, num: int, seed: int) -> None:
    """Write candidate pairs and known pairs as CSV files."""
    given = make_candidates(num, seed)
    rng = np.random.default_rng(seed + 1)
    known = rng.random(len(given.match)) < 0.1
    columns = list(given.table)
    rows = list(zip(*given.table.values(), strict=True))
    lines = [",".join(columns), *(",".join([f"{w:.4f}", *rest]) for w, *rest in rows)]
    (folder / "pairs.csv").write_text("\n".join(lines) + "\n")
    lines = ["unique_id_l,unique_id_r,is_match"]
    for k in np.flatnonzero(known):
        lines.append(f"{rows[k][1]},{rows[k][2]},{int(given.match[k])}")
    (folder / "known.csv").write_text("\n".join(lines) + "\n")
    print(f"wrote {len(rows)} pairs and {known.sum()} known pairs to {folder}")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="Link two registers.")
    parser.add_argument("--quick", action="store_true", help="smaller registers")
    parser.add_argument("--splink", action="store_true", help="let Splink score the pairs")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write files and do no more")
    parser.add_argument("--people", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.write is not None:
        write(given.write, given.people, given.seed)
    else:
        run(quick=given.quick, splink=given.splink)


if __name__ == "__main__":
    main()
