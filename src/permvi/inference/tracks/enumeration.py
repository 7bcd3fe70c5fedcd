"""All associations of a few points, one by one."""

import numpy as np

from permvi._compiled import compiled

# More associations than this are not listed.
MAX_ASSOCIATIONS = 200_000


@compiled()
def _list(starts: np.ndarray, cands: np.ndarray, most: int) -> tuple[np.ndarray, int, bool]:
    """(A, N) the predecessors of all associations, and whether there are at most ``most``."""
    N = len(starts) - 1
    found = np.empty((most, N), np.int32)
    # The choice of each point: its candidates in turn, then none.
    choice, pred = starts[:-1].copy(), np.full(N, -1, np.int32)
    used = np.zeros(N, np.bool_)
    num, i = 0, 0
    while i >= 0:
        if i == N:
            if num == most:
                return found, num, False
            found[num] = pred
            num += 1
            i -= 1
            continue
        if pred[i] >= 0:
            used[pred[i]] = False
            pred[i] = -1
        while choice[i] < starts[i + 1] and used[cands[choice[i]]]:
            choice[i] += 1
        if choice[i] < starts[i + 1]:
            pred[i] = cands[choice[i]]
            used[pred[i]] = True
            choice[i] += 1
            i += 1
        elif choice[i] == starts[i + 1]:
            choice[i] += 1
            i += 1
        else:
            choice[i] = starts[i]
            i -= 1
    return found, num, True


def all_associations(starts: np.ndarray, cands: np.ndarray) -> np.ndarray | None:
    """(A, N) the predecessor of each point, -1 for none, in each association; None if too many."""
    sizes = np.diff(starts)
    # Points can choose independently of each other but for what is used: an upper bound is enough
    # for nearly all problems that are far too large.
    if np.log1p(sizes).sum() > 4.0 * np.log(MAX_ASSOCIATIONS):
        return None
    found, num, complete = _list(starts, cands, MAX_ASSOCIATIONS)
    return found[:num] if complete else None
