"""Every matching of a small problem and its log weight, by plain recursion over its definition."""

import math

import numpy as np
from scipy.special import logsumexp


def brute_force(scores, mask=None, known=None, row_unmatched=None, col_unmatched=None):
    """A dict from matchings (tuples, -1 for unmatched) to log weights."""
    n, m = len(scores), len(scores[0])
    rows = _alone(row_unmatched, n, surplus=n > m)
    # An unmatched row leaves a column unused.
    cols = _alone(col_unmatched, m, surplus=m > n or row_unmatched is not None)
    found = {}

    def extend(prefix, weight):
        i = len(prefix)
        if weight == -math.inf:
            return
        if i == n:
            weight += sum(cols[j] for j in range(m) if j not in prefix)
            if weight > -math.inf:
                found[prefix] = weight
            return
        fixed = known is not None and known[i] >= 0
        if not fixed:
            extend((*prefix, -1), weight + rows[i])
        for j in [known[i]] if fixed else range(m):
            if j not in prefix and (mask is None or mask[i][j]):
                extend((*prefix, int(j)), weight + scores[i][j])

    extend((), 0.0)
    return found


def summarise(found, shape):
    """Log evidence, grounded marginals (n+1, m+1), entropy and the log probabilities."""
    n, m = shape
    matchings, weights = list(found), np.array(list(found.values()))
    log_evidence = logsumexp(weights)
    log_probs = weights - log_evidence
    marginals = np.zeros((n + 1, m + 1))
    for matching, p in zip(matchings, np.exp(log_probs), strict=True):
        for i, j in enumerate(matching):
            marginals[i, j] += p
        for j in set(range(m)) - set(matching):
            marginals[n, j] += p
    entropy = -np.sum(np.exp(log_probs) * log_probs)
    return log_evidence, marginals, entropy, log_probs


def _alone(value, size, surplus):
    if value is None:
        return [0.0 if surplus else -math.inf] * size
    return np.broadcast_to(np.asarray(value, dtype=float), size).tolist()
