"""A posterior for other libraries: pandas and ArviZ."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from permvi.inference.exact.problem import positive_int
from permvi.posterior.draws import DrawsLaw

if TYPE_CHECKING:
    import pandas as pd

    from permvi.posterior.posterior import Posterior

_DEFAULT_DRAWS = 1000


def to_frame(posterior: "Posterior", level: float) -> "pd.DataFrame":
    """A row per item: its label, best label, runner-up, probabilities, entropy, credible set."""
    import pandas as pd

    frame = pd.DataFrame([asdict(item) for item in posterior.item_summaries(level)])
    # One permutation has no use for the site, and the index is the row already.
    return frame.drop(columns="row" if posterior.num_sites > 1 else ["site", "row"])


def to_arviz(posterior: "Posterior", num: int | None, seed: int) -> Any:
    """One chain of draws of ``perm`` and of the latents that have draws."""
    try:
        import arviz
    except ImportError as error:
        raise ImportError("to_arviz needs ArviZ, got none; try pip install arviz.") from error
    import xarray as xr

    perms, latents = _joint_draws(posterior, num, seed)
    event_dims = ("row",) if posterior.num_sites == 1 else ("site", "row")
    variables = {"perm": (("chain", "draw", *event_dims), perms[None])}
    for site, draws in latents.items():
        # In a DataTree a slash would lead to another group.
        name = site.replace("/", ".")
        dims = tuple(f"{name}_dim_{axis}" for axis in range(draws.ndim - 1))
        variables[name] = (("chain", "draw", *dims), draws[None])
    names = posterior.labels[0]
    sizes = {"chain": 1, "draw": len(perms), "site": posterior.num_sites}
    coords = {dim: np.arange(size) for dim, size in sizes.items()}
    coords["row"] = np.arange(posterior.shape[0]) if names is None else np.array(names)
    if posterior.num_sites == 1:
        del coords["site"]
    attrs = {
        "inference_library": "permvi",
        "inference_library_version": posterior.version,
        "method": posterior.method,
        "verdict": posterior.diagnostics.verdict,
    }
    group = xr.Dataset(variables, coords=coords, attrs=attrs)
    if int(arviz.__version__.split(".")[0]) < 1:
        return arviz.InferenceData(posterior=group)
    return xr.DataTree.from_dict({"posterior": group})


def _joint_draws(
    posterior: "Posterior", num: int | None, seed: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Draws of the permutations, and of latents: together where they were drawn together."""
    rng = np.random.default_rng(seed)
    law = posterior.law
    kept = {
        name: latent.draws for name, latent in posterior.latents.items() if latent.draws is not None
    }
    if num is None:
        num = len(law.draws) if isinstance(law, DrawsLaw) else _DEFAULT_DRAWS
    num = positive_int("num", num)
    if isinstance(law, DrawsLaw):
        chosen = np.sort(law.choose(num, rng))
        perms = law.draws[chosen].astype(np.int64)
        together = {name: draws for name, draws in kept.items() if len(draws) == len(law.draws)}
    else:
        chosen, together = np.zeros(0, dtype=np.int64), {}
        perms = law.sample(num, rng)
    return perms, {
        name: draws[chosen if name in together else rng.integers(len(draws), size=num)]
        for name, draws in kept.items()
    }
