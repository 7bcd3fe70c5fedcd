"""The order of items as ``permvi rank`` gives it out."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from permvi._cli import results, terminal
from permvi._cli.consensus import Consensus, dispersion
from permvi._cli.rankings import Rankings
from permvi.inference.plackett_luce import fit_rankings
from permvi.posterior import Latent, Posterior

# Of these the probabilities that one item comes before the next, and theta.
_NUM_DRAWS = 4000


class Order(NamedTuple):
    """What is known of an item.

    Attributes:
        item: Its name.
        rank: From 1, in the order whose ranks are least far from the true ones on average.
        probability: Of this rank.
        low: The least rank of its credible interval.
        high: The largest.
        p_first: The probability that it is the best of all.
        p_before_next: That it comes before the item of the next rank, None for the last one.
        log_worth: In a Plackett-Luce model, None where rankings do not determine it.
    """

    item: str
    rank: int
    probability: float
    low: int
    high: int
    p_first: float
    p_before_next: float | None
    log_worth: float | None


def with_dispersion(posterior: Posterior, found: Consensus, offset: float) -> Posterior:
    """The posterior with theta as a latent, and the constant that its density went without."""
    mean, sd = dispersion(found, posterior.sample(_NUM_DRAWS, posterior.seed or 0))
    evidence = posterior.log_evidence
    return dataclasses.replace(
        posterior,
        latents={"theta": Latent(np.array(mean), np.array(sd))},
        log_evidence=None if evidence is None else evidence + offset,
    )


def log_worths(rankings: Rankings) -> np.ndarray | None:
    """(n,) of the Plackett-Luce model of largest likelihood, mean zero; None if there is none."""
    longest = max(len(ranking.items) for ranking in rankings.rankings)
    lists = [
        [*ranking.items, *[-1] * (longest - len(ranking.items))] for ranking in rankings.rankings
    ]
    try:
        return fit_rankings(
            np.array(lists),
            [ranking.times for ranking in rankings.rankings],
            num_items=len(rankings.items),
            unranked="below" if rankings.others_below else "absent",
        ).log_worths
    except ValueError:
        # Some items always came before all others.
        return None


def orders_of(posterior: Posterior, worths: np.ndarray | None, level: float) -> list[Order]:
    """All items, the best one first."""
    names, _ = results.names_of(posterior)
    draws = posterior.sample(_NUM_DRAWS, posterior.seed or 0)
    order = np.argsort(posterior.expected_loss("footrule").perm)
    below = np.cumsum(posterior.marginals, axis=1)
    found = []
    for rank, item in enumerate(order.tolist()):
        # What is outside has at most half of the rest on either side.
        low, high = np.searchsorted(below[item], [(1 - level) / 2, (1 + level) / 2 - 1e-9])
        after = None
        if rank + 1 < len(order):
            after = float(np.mean(draws[:, item] < draws[:, order[rank + 1]]))
        found.append(
            Order(
                names[item],
                rank + 1,
                float(posterior.marginals[item, rank]),
                int(low) + 1,
                min(int(high), len(order) - 1) + 1,
                float(posterior.marginals[item, 0]),
                after,
                None if worths is None else float(worths[item]),
            )
        )
    return found


def rows_of(orders: Sequence[Order]) -> list[dict[str, Any]]:
    """The items as JSON and CSV have them."""
    return [order._asdict() for order in orders]


def as_object(posterior: Posterior, orders: Sequence[Order], level: float) -> Mapping[str, Any]:
    """Everything as one object that JSON can hold."""
    return {
        **results.verdict_of(posterior),
        "items": rows_of(orders),
        "theta": {
            name: float(getattr(posterior.latents["theta"], name)) for name in ("mean", "sd")
        },
        **results.record_of(posterior, level),
    }


def show(posterior: Posterior, orders: Sequence[Order], level: float) -> None:
    """Print the items in their order, and what to think of it."""
    with_worth = orders[0].log_worth is not None
    terminal.table(
        "In which order?",
        [">rank", "item", ">p", f">{100 * level:g} % ranks", ">p first", ">p before next"]
        + [">log worth"] * with_worth,
        [
            [
                str(order.rank),
                order.item,
                f"{order.probability:.3f}",
                str(order.low) if order.low == order.high else f"{order.low} to {order.high}",
                f"{order.p_first:.3f}",
                "" if order.p_before_next is None else f"{order.p_before_next:.3f}",
                *([] if order.log_worth is None else [f"{order.log_worth:.2f}"]),
            ]
            for order in orders
        ],
        fold=False,
    )
    terminal.lines(results.facts_of(posterior))
