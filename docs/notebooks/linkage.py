# %% [markdown]
# # Linkage: which records are the same person?
#
# Two lists of people have typing errors, and each has people whom the other lacks. Comparing
# records field by field gives every pair a match weight, as Splink and similar tools do. These
# weights judge each pair by itself. permvi makes them consistent: a record has at most one
# partner.

# %%
import string

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.special import expit

import permvi as pv

rng = np.random.default_rng(2)
FIRST = ["Anna", "Anne", "Bert", "Carl", "Clara", "Dora", "Emil", "Fritz", "Greta", "Hanna"]
FIRST += ["Jan", "Jana", "Karl", "Lena", "Max", "Nora"]
LAST = ["Adler", "Bauer", "Beck", "Braun", "Engel", "Fischer", "Graf", "Huber", "Keller", "Koch"]
LAST += ["Lang", "Maier", "Mayer", "Roth"]
TOWNS = ["Bonn", "Celle", "Jena", "Kiel"]


def with_errors(row: list) -> list:
    """Return a copy of a record with some errors."""
    first, last, year, town = row
    if rng.random() < 0.15:
        place = rng.integers(1, len(first))
        first = first[:place] + rng.choice(list(string.ascii_lowercase)) + first[place + 1 :]
    if rng.random() < 0.1:
        year += int(rng.choice([-1, 1]))
    if rng.random() < 0.15:
        town = str(rng.choice(TOWNS))
    if rng.random() < 0.1:
        last = str(rng.choice(LAST))
    return [first, last, year, town]


people = [
    [*map(str, (rng.choice(FIRST), rng.choice(LAST))), int(rng.integers(1950, 1990)), town]
    for town in map(str, rng.choice(TOWNS, size=600))
]
FIELDS = ["first", "last", "year", "town"]
left = pd.DataFrame([with_errors(p) for p in people[:500]], columns=FIELDS)
right = pd.DataFrame([with_errors(p) for p in people[100:]], columns=FIELDS)
left.index = [f"L{k}" for k in range(500)]
right.index = [f"R{k}" for k in range(100, 600)]
left.head(3)

# %% [markdown]
# ## Candidate pairs and their weights
#
# Pairs that share a last name or a birth year are candidates. The weight of a field that agrees
# is log(m / u): m is the share of matches that agree, u the share of other pairs that do. Both
# are known here; Splink and `examples/record_linkage.py` estimate them from the data.
#
# Prior odds are added. In a one-to-one matching a pair competes with both of its records staying
# alone: if four of five records have a partner among 500, these odds are .8 / (500 · .2 · .2). A
# pair that is judged by itself competes with all other pairs instead: 400 matches among 250,000
# pairs.

# %%
a = left.reset_index(names="left_id").assign(one=1)
pairs = pd.concat(
    a.merge(right.reset_index(names="right_id"), on=field, suffixes=("_l", "_r")).assign(
        **{f"{field}_l": lambda t, f=field: t[f], f"{field}_r": lambda t, f=field: t[f]}
    )
    for field in ("last", "year")
).drop_duplicates(["left_id", "right_id"])
M = {"first": 0.72, "last": 0.81, "year": 0.81, "town": 0.78}
U = {"first": 1 / 16, "last": 1 / 14, "year": 1 / 40, "town": 1 / 4}
weight = np.zeros(len(pairs))
for field in FIELDS:
    agree = (pairs[f"{field}_l"] == pairs[f"{field}_r"]).to_numpy()
    weight += np.where(agree, np.log(M[field] / U[field]), np.log((1 - M[field]) / (1 - U[field])))
pairs = pairs[["left_id", "right_id"]].assign(weight=weight + np.log(0.8 / (500 * 0.2 * 0.2)))
by_itself = expit(weight + np.log(400 / 250_000))
truth = (pairs["left_id"].str[1:] == pairs["right_id"].str[1:]).to_numpy()
print(f"{len(pairs):,} candidate pairs, {truth.sum()} of 400 matches are among them")
pairs.sort_values("weight", ascending=False).head(3)

# %% [markdown]
# ## One to one

# %%
found = pv.match_pairs(
    pairs, item_col="left_id", label_col="right_id", score_col="weight", kind="log-odds"
)
for text in found.assumptions:
    print("assumed:", text)
linked = found.to_pandas()
linked.head(3)

# %% [markdown]
# `p_link` is the probability of a link that respects all other pairs. The picture shows where it
# differs from the probability of the pair by itself: a pair without rivals gains, a pair that
# has a stronger competitor loses.

# %%
figure, ax = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
for value, name in ((False, "others"), (True, "matches")):
    chosen = truth == value
    ax.scatter(by_itself[chosen], linked["p_link"][chosen], s=7, alpha=0.6, label=name)
ax.plot([0, 1], [0, 1], color="0.8", zorder=0)
ax.set(xlabel="probability of a pair by itself", ylabel="probability of the link")
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# ## A decision, and what to expect of it
#
# The summary has the expected precision and recall at every threshold, without knowing the
# truth. Here we do know it.

# %%
suggested = found.summary["suggested"]
for name, chosen in (
    ("pair by pair", by_itself >= 0.5),
    ("one to one", linked["p_link"] >= suggested["threshold"]),
):
    hits = (chosen & truth).sum()
    print(f"{name:13} {chosen.sum()} links, precision {hits / chosen.sum():.3f}", end=", ")
    print(f"recall {hits / truth.sum():.3f}")
print(f"expected      precision {suggested['precision']:.3f}, recall {suggested['recall']:.3f}")
low, high = found.summary["expected_matches_interval"]
print(f"matches among the candidates: {truth.sum()}, expected {low} to {high}")

# %% [markdown]
# ## What to look at by hand
#
# `review.csv` lists the groups of records in which a clerical answer would remove most errors.

# %%
review = pd.read_csv(found.folder / "review.csv")
review.head()

# %% [markdown]
# Some answers are known? Then let them correct the weights: `match_pairs(..., calibrate=known)`
# fits a temperature and an offset. For millions of pairs the same call reads Parquet files and
# runs on several processes; see [Linking records](../linkage.md).
