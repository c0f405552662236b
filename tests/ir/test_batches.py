"""Batches of matrices in parts on several threads: the same results, bit by bit."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest

from tilewright.ir.numeric import batches, matrices


@pytest.fixture(autouse=True)
def three_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "threads", lambda: 3)
    monkeypatch.setattr(batches, "WORTH", 1)


def batch(*shape: int) -> np.ndarray:
    a = np.random.default_rng(0).normal(size=shape)
    return a @ np.swapaxes(a, -2, -1) + np.eye(shape[-1])


ROUTINES = [
    ("cholesky", np.linalg.cholesky),
    ("inv", np.linalg.inv),
    ("det", None),
    ("svdvals", lambda x: np.linalg.svd(x, compute_uv=False)),
    ("eigvals", None),
]


@pytest.mark.parametrize(("name", "numpy"), ROUTINES)
def test_the_parts_of_a_batch(name: str, numpy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for shape in ((7, 5, 5), (2, 4, 3, 3), (1, 4, 4), (0, 4, 4), (5, 0, 0)):
        a = batch(*shape)
        whole = getattr(matrices, name)(a)
        monkeypatch.setattr(batches, "threads", lambda: 1)
        alone = getattr(matrices, name)(a)
        monkeypatch.setattr(batches, "threads", lambda: 3)
        for one, other in zip(whole, alone):
            assert one.shape == other.shape and one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        if numpy is not None:
            np.testing.assert_allclose(whole[0], numpy(a), rtol=1e-11, atol=1e-12)


def test_a_matrix_without_a_result_in_one_part() -> None:
    a = batch(9, 4, 4)
    a[7, 2:] = 0
    found, info = matrices.inv(a)
    assert np.isnan(found[7]).all() and info.tolist() == [0] * 7 + [3, 0]
    np.testing.assert_allclose(found[:7], np.linalg.inv(a[:7]), rtol=1e-11, atol=1e-12)
    found, info = matrices.solve(a, np.ones((9, 4, 2)))
    assert found.shape == (9, 4, 2) and info[7] == 3 and np.isfinite(found[8]).all()


def test_several_threads_take_part() -> None:
    names: set[str] = set()
    meet = threading.Barrier(3, timeout=30)

    def function(x: Any) -> Any:
        names.add(threading.current_thread().name)
        meet.wait()
        return x + 1

    a = batch(6, 2, 2)
    np.testing.assert_array_equal(batches.by_parts(function, a), a + 1)
    assert len(names) == 3


def test_an_error_is_raised_when_all_parts_have_ended() -> None:
    def function(x: Any) -> Any:
        raise np.linalg.LinAlgError("none")

    with pytest.raises(np.linalg.LinAlgError):
        batches.by_parts(function, batch(6, 2, 2))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own() -> None:
    a = batch(6, 2, 2)
    matrices.inv(a)
    child = os.fork()
    if not child:
        os._exit(0 if np.isfinite(matrices.inv(a)[0]).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
