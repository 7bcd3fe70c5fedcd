# %% [markdown]
# # Ranking: which coffee is best?
#
# Sixty guests taste six coffees and write down their order, some only their three favourites.
# Which coffee is best, how sure is that, and do all guests have the same taste? The data are
# simulated: most guests agree up to chance, and a third of them likes it the other way round.

# %%
import matplotlib.pyplot as plt
import numpy as np

import permvi as pv

rng = np.random.default_rng(5)


def ballot(taste: list[str]) -> list[str]:
    """Return a noisy copy of an order, which a guest who likes coffee less cuts after three."""
    order: list[str] = []
    for k, coffee in enumerate(taste):
        # To be put before a better one costs a factor of four.
        weights = 4.0 ** -np.arange(k, -1, -1)
        order.insert(rng.choice(k + 1, p=weights / weights.sum()), coffee)
    return order[: 3 if rng.random() < 0.3 else None]


usual = ["Esmeralda", "Aricha", "Dukunde", "Caturra", "Bolivar", "Fazenda"]
sweet = ["Fazenda", "Bolivar", "Caturra", "Aricha", "Dukunde", "Esmeralda"]
votes = [ballot(usual) for _ in range(40)] + [ballot(sweet) for _ in range(20)]
votes[:4]

# %% [markdown]
# ## The order
#
# A coffee that a guest did not list comes after the listed ones.

# %%
rankings = pv.models.Rankings(votes, unranked="below")
found = pv.rank(rankings)
for row in found.table():
    print(
        f"{row.rank}. {row.item:10} rank {row.low} to {row.high}, first with p = {row.p_first:.2f}"
    )

# %% [markdown]
# The model is Mallows': guests write down the true order with some exchanges of neighbours.
# Whether guests behave like that is checked, by comparing the ballots with simulated ones.

# %%
print(found.posterior.model_check)
print(found.shown_as)

# %% [markdown]
# The check finds what we put in: distances to the common order vary too much. The probabilities
# above are therefore those of a bootstrap over guests, not those of the model, which would be
# too sure.

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
pv.plots.ranking(found.table(), axes[0])
pv.plots.before(found, axes[1])
plt.show()

# %% [markdown]
# ## Groups of guests
#
# If there may be groups with a taste of their own, ask for them. The evidence tells how many
# there are.

# %%
parts = pv.rank(rankings, groups="auto")
for one in parts.compared_groups:
    print(f"{one.num_groups} groups: log evidence {one.log_evidence:.1f} ± {one.se:.1f}")
for k, (share, low, high) in enumerate(parts.groups.shares):
    print(
        f"group {k + 1}: {share:.0%} ({low:.0%} to {high:.0%}):", " > ".join(parts.group_order(k))
    )

# %% [markdown]
# ## A decision
#
# You can buy two coffees. By the common order these are the first two. If you would rather
# please both groups, take the first of each.

# %%
common = [row.item for row in found.table()[:2]]
each = list(dict.fromkeys(parts.group_order(k)[0] for k in range(len(parts.groups.shares))))
shares = [share for share, _, _ in parts.groups.shares]


def pleased(choice: list[str]) -> float:
    """Return the share of guests whose group has its favourite in a choice."""
    columns = [list(rankings.items).index(name) for name in choice]
    firsts = [order.marginals[columns, 0].sum() for order in parts.groups.orders]
    return float(np.dot(shares, firsts))


print("the first two of all:", common, f"{pleased(common):.0%}")
print("the first of each group:", each, f"{pleased(each):.0%}")
