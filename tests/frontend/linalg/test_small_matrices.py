"""Small matrices on GPUs: kernels of our own, beside NumPy and PyTorch; larger ones by the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen.triton.matrices import matrices
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.runtime.offline import compile_request, request

pytestmark = pytest.mark.triton
RNG = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def definite(*shape: int) -> np.ndarray:
    x = drawn(*shape)
    return x @ x.swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1])


CALLS: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "cholesky": (lambda m, a: m.linalg.cholesky(a), [definite(2, 3, 5, 5)]),
    "cholesky, upper": (lambda m, a: m.linalg.cholesky(a, upper=True), [definite(17, 17)]),
    "by a factor": (
        lambda m, b, a: m.cholesky_solve(b, m.linalg.cholesky(a)),
        [drawn(2, 5, 3), definite(2, 5, 5)],
    ),
    "inverse by a factor": (
        lambda m, a: m.cholesky_inverse(m.linalg.cholesky(a)),
        [definite(2, 4, 4)],
    ),
    "lower": (
        lambda m, a, b: m.linalg.solve_triangular(a, b, upper=False),
        [definite(3, 4, 4), drawn(3, 4, 20)],
    ),
    "upper, unit": (
        lambda m, a, b: m.linalg.solve_triangular(a, b, upper=True, unitriangular=True),
        [drawn(2, 6, 6) / 4, drawn(2, 6, 1)],
    ),
    "from the right": (
        lambda m, a, b: m.linalg.solve_triangular(a, b, upper=True, left=False),
        [definite(2, 3, 3), drawn(2, 2, 3)],
    ),
    "solve": (lambda m, a, b: m.linalg.solve(a, b), [drawn(4, 5, 5), drawn(4, 5, 2)]),
    "solve of a vector": (lambda m, a, b: m.linalg.solve(a, b), [drawn(33, 33), drawn(33)]),
    "solve, zeros on the diagonal": (
        lambda m, a, b: m.linalg.solve(a, b),
        [np.eye(4)[[1, 2, 3, 0]] + 0 * drawn(2, 4, 4), drawn(2, 4, 4)],
    ),
    "qr": (lambda m, a: sum(x.sum() ** 2 for x in m.linalg.qr(a)), [drawn(2, 7, 4)]),
    "qr of wide ones": (lambda m, a: m.linalg.qr(a)[1], [drawn(3, 17)]),
    "qr, complete": (
        lambda m, a: m.cat(m.linalg.qr(a, "complete"), -1),
        [np.triu(drawn(2, 4, 4), 1)],
    ),
    "lu": (lambda m, a: m.cat(m.linalg.lu(a), -1), [drawn(2, 5, 5)]),
    "lu of tall ones": (lambda m, a: m.linalg.lu_factor(a)[0], [drawn(3, 18, 4)]),
    "lu of wide ones": (lambda m, a: m.linalg.lu_factor(a)[0], [drawn(2, 3, 20)]),
    "solution by lu": (
        lambda m, a, b: m.linalg.lu_solve(*m.linalg.lu_factor(a), b),
        [drawn(2, 6, 6), drawn(2, 6, 2)],
    ),
    "inverse": (lambda m, a: m.linalg.inv(a), [drawn(3, 1, 1)]),
    "inverse of more": (lambda m, a: m.linalg.inv(a), [drawn(2, 9, 9)]),
}


def outcome(m: Any, name: str, device: str) -> list[np.ndarray]:
    """The value, and the gradients of the operands."""
    call, arrays = CALLS[name]
    given = [m.tensor(a, device=device, requires_grad=True) for a in arrays]
    y = call(m, *given)
    found = m.autograd.grad((y**3).sum(), given)
    return [t.detach().cpu().numpy() for t in (y, *found)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients(
    torch: Any, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TW_DEBUG", "1")
    ours = outcome(tw, name, "interpret")
    assert "the host computes" not in capsys.readouterr().err
    for a, b in zip(ours, outcome(torch, name, "cpu"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * max(1, np.abs(b).max()))


def test_what_has_no_result() -> None:
    a = definite(3, 4, 4)
    a[1, 2, 2] = -1
    found, info = tw.linalg.cholesky_ex(tw.tensor(a, device="interpret"))
    assert info.tolist() == [0, 3, 0]
    assert found.isnan().any(-1).any(-1).tolist() == [False, True, False]
    with pytest.raises(tw.linalg.LinAlgError, match=r"element 1.*minor of order 3"):
        tw.linalg.cholesky(tw.tensor(a, device="interpret"))
    a[2, :, 1] = 0
    with pytest.raises(tw.linalg.LinAlgError, match=r"element 2.*singular"):
        tw.linalg.inv(tw.tensor(a, device="interpret")).tolist()


def test_the_host_computes_what_is_large_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TW_DEBUG", "1")
    a = definite(65, 65)
    found = tw.linalg.cholesky(tw.tensor(a, device="interpret"))
    np.testing.assert_allclose(found.cpu().numpy(), np.linalg.cholesky(a), atol=1e-12)
    assert "the host computes cholesky of interpret" in capsys.readouterr().err


def test_the_largest_stay_in_registers() -> None:
    n = ops.solve.tile
    inputs = [((4096, n, n), dt.float32)] * 2
    emitted = matrices(ops.solve, (), inputs, [inputs[0], ((4096,), dt.int32)])
    found = compile_request(request(emitted, "sm_90"))
    assert found.spills == 0 and found.shared <= 4096
