"""Threads that share the cores with BLAS."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import permvi as pv
from permvi import _threads


def blas_threads():
    return {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}


def test_blas_has_one_thread_inside_and_its_own_outside(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpool_limits(2, user_api="blas"):
        assert blas_threads() == {2}
        with _threads.pool(3) as outer:
            assert list(outer.map(lambda x: 2 * x, range(5))) == [0, 2, 4, 6, 8]
            assert blas_threads() == {1}
        assert blas_threads() == {2}
        with _threads.pool(1):
            assert blas_threads() == {2}


def test_pools_that_overlap_leave_the_limits_as_they_were(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    with threadpool_limits(2, user_api="blas"):
        first, second = _threads.pool(2), _threads.pool(2)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert blas_threads() == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == {2}


def test_there_are_no_more_threads_than_tasks_or_cores(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    for num_tasks, expected in ((1, 1), (2, 2), (9, 3)):
        with _threads.pool(num_tasks) as threads:
            assert isinstance(threads, ThreadPoolExecutor)
            assert threads._max_workers == expected


def test_a_fit_does_not_depend_on_the_threads_of_blas(rng):
    scores, seen = rng.normal(size=(4, 4)), set()

    def density(perm):
        seen.update(blas_threads())
        return float(scores[np.arange(4), perm].sum())

    with threadpool_limits(2, user_api="blas"):
        pv.fit(density, "exact", n=4, input="perm", jax=False)
        pv.fit(density, "importance", n=4, input="perm", jax=False)
        assert seen == {1, 2}, "the exact method adds up by itself"
        assert blas_threads() == {2}


@pytest.mark.filterwarnings("ignore::permvi.FitWarning")
@pytest.mark.parametrize("method", ["exact", "linear", "map", "perturb_and_map", "importance"])
def test_fits_in_threads_equal_fits_one_after_the_other(method, rng):
    models = [pv.models.LinearMatching(2 * rng.normal(size=(5, 5))) for _ in range(6)]
    alone = [pv.fit(model, method, seed=k) for k, model in enumerate(models)]
    with ThreadPoolExecutor(4) as threads:
        together = list(
            threads.map(lambda k: pv.fit(models[k], method, seed=k), range(len(models)))
        )
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one.marginals, other.marginals)
        assert one.log_evidence == other.log_evidence
