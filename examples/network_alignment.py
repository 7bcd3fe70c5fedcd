"""Match the nodes of two noisy copies of a network.

A random network is copied twice, each copy loses some edges and gains others, and the nodes of one
copy are shuffled. A few nodes are known, and the others must be identified. The log density of a
matching is quadratic: it counts the edges that the copies share. The best matching alone does not
tell how many of its pairs are right; the posterior does, and here it is exact. Run
``python examples/network_alignment.py``.
"""
# ruff: noqa: T201

import argparse

import numpy as np

import permvi as pv


def random_network(num_nodes: int, p_edge: float, rng: np.random.Generator) -> np.ndarray:
    """Return the symmetric (n, n) 0/1 matrix of an Erdos-Renyi network."""
    upper = np.triu(rng.random((num_nodes, num_nodes)) < p_edge, 1)
    return (upper | upper.T).astype(float)


def noisy_copy(network: np.ndarray, noise: float, rng: np.random.Generator) -> np.ndarray:
    """Return a copy in which each edge or absent edge is flipped with probability ``noise``."""
    flips = np.triu(rng.random(network.shape) < noise, 1)
    return np.abs(network - (flips | flips.T))


def align(
    observed: np.ndarray, reference: np.ndarray, noise: float, known: np.ndarray
) -> pv.models.GraphMatching:
    """Return the model: the weight of a pair of nodes that agrees is the odds of agreeing.

    A pair differs between two copies if exactly one of them flipped it. The number of agreeing
    entries of two 0/1 matrices is ``2 <A, X B X'>`` plus a constant. This counts each pair of nodes
    in both directions, so the log density is half of it times the log odds.
    """
    p_differ = 2 * noise * (1 - noise)
    return pv.models.GraphMatching(
        observed, reference, scale=np.log((1 - p_differ) / p_differ), known=known
    )


def run(*, quick: bool = False) -> list[dict[str, float]]:
    """Print the table and return its rows."""
    num_nodes, num_known, repeats = (9, 3, 2) if quick else (14, 6, 10)
    unknown = np.arange(num_nodes) >= num_known
    rng = np.random.default_rng(1)
    rows = []
    print(f"{repeats} networks of {num_nodes} nodes, {num_known} of them known; of the others\n")
    print("noise  best matching  right  expected  right of those with p >= .9")
    for noise in (0.05, 0.1, 0.15):
        promised, kept, first = [], [], []
        for _ in range(repeats):
            network = random_network(num_nodes, 0.4, rng)
            truth = rng.permutation(num_nodes)
            reference = noisy_copy(network, noise, rng)
            observed = noisy_copy(network, noise, rng)[np.ix_(truth, truth)]
            known = np.where(unknown, -1, truth)
            posterior = pv.fit(align(observed, reference, noise, known), "exact")
            likely = posterior.expected_loss("hamming").perm
            p_likely = np.asarray(posterior.marginals)[np.arange(num_nodes), likely]
            promised.append(p_likely[unknown])
            kept.append((likely == truth)[unknown])
            first.append((np.asarray(posterior.mode) == truth)[unknown])
        sure = np.concatenate(promised) >= 0.9
        row = {
            "noise": noise,
            "best matching": float(np.mean(first)),
            "right": float(np.mean(kept)),
            "expected": float(np.mean(promised)),
            "sure": int(sure.sum()),
            "sure and right": int(np.concatenate(kept)[sure].sum()),
        }
        rows.append(row)
        print(
            f"{noise:5.2f} {row['best matching']:14.2f} {row['right']:6.2f} {row['expected']:9.2f}"
            f"  {row['sure and right']:3} of {row['sure']}"
        )
    return rows


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="Match two noisy copies of a network.")
    parser.add_argument("--quick", action="store_true", help="a small network")
    run(quick=parser.parse_args().quick)


if __name__ == "__main__":
    main()
