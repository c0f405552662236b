"""Warnings of PyTorch that scripts meet first: the category, the text, and the user's line."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw
from tilewright.ir import location

CALLS: dict[str, Callable[[Any], Any]] = {
    "tensor of a tensor": lambda m: m.tensor(m.ones(2)),
    "new_tensor of a tensor": lambda m: m.ones(1).new_tensor(m.ones(2)),
    "std of one element": lambda m: m.ones(1).std(),
    "var of rows of one": lambda m: m.ones(3, 1).var(1),
    "autocast": lambda m: m.cuda.amp.autocast(enabled=False),
    "scaler": lambda m: m.cuda.amp.GradScaler(enabled=False),
    "cpu autocast": lambda m: m.cpu.amp.autocast(),
    "custom_fwd": lambda m: m.cuda.amp.custom_fwd(lambda x: x),
    "upsample": lambda m: m.nn.functional.upsample(m.ones(1, 1, 2, 2), scale_factor=2),
    "mean of divergences": lambda m: m.nn.functional.kl_div(m.ones(2), m.ones(2)),
    "sparse type": lambda m: m.sparse.FloatTensor(m.tensor([[0], [1]]), m.ones(1), (2, 2)),
    "sparse type without a size": lambda m: m.sparse.FloatTensor(m.tensor([[0], [1]]), m.ones(1)),
    "sparse type of a size": lambda m: m.sparse.LongTensor(2, 3),
    "no sparse values": lambda m: m.sparse.DoubleTensor(),
    "no dimension of softmax": lambda m: m.nn.functional.softmax(m.ones(2, 2)),
    "size_average": lambda m: m.nn.MSELoss(size_average=False),
    "reduce": lambda m: m.nn.functional.l1_loss(m.ones(2), m.ones(2), reduce=False),
    "lazy module": lambda m: m.nn.LazyLinear(2),
    "var of no elements": lambda m: m.ones(0).var(),
    "var of no rows": lambda m: m.ones(0, 3).var(1),
    "var_mean of one element": lambda m: m.var_mean(m.ones(1)),
    "cov of one observation": lambda m: m.cov(m.ones(3, 1)),
    "corrcoef of one observation": lambda m: m.corrcoef(m.ones(3, 1)),
    "derivatives in float32": lambda m: m.autograd.gradcheck(
        lambda x: x * 2, m.ones(1, requires_grad=True), eps=1e-2, atol=1
    ),
    "std of two": lambda m: m.ones(2).std(),
    "std without correction": lambda m: m.ones(1).std(unbiased=False),
    "pinned memory": lambda m: list(m.utils.data.DataLoader([1, 2], pin_memory=True)),
}
ONCE: dict[str, Callable[[Any], Any]] = {  # in a run
    "meshgrid": lambda m: m.meshgrid(m.arange(2), m.arange(3)),
    "x.T of three dimensions": lambda m: m.ones(2, 2, 2).T,
    "x.T of none": lambda m: m.tensor(1.0).T,
    "a number with a gradient": lambda m: float(m.ones((), requires_grad=True)),
}


def warned(call: Callable[[Any], Any], m: Any) -> list[tuple[type, str]]:
    """What a call warns of; also what PyTorch says once in a run, wherever it was said before."""
    before = m.is_warn_always_enabled()
    m.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            call(m)
    finally:
        m.set_warn_always(before)
    # PyTorch's kernels add where in its sources they warn.
    return [(w.category, str(w.message).split(" (Triggered internally")[0]) for w in seen]


@pytest.mark.skipif(tw.cuda.is_available(), reason="some warnings are about its absence")
@pytest.mark.parametrize("name", CALLS)
def test_warnings(torch: Any, name: str) -> None:
    found = [w for w in warned(CALLS[name], torch) if "invariant checks" not in w[1]]
    assert warned(CALLS[name], tw) == found


@pytest.mark.parametrize("name", ONCE)
def test_warnings_that_come_once(torch: Any, monkeypatch: Any, name: str) -> None:
    from tilewright.ir import location

    monkeypatch.setattr(location, "_said", set())
    assert warned(ONCE[name], tw) == warned(ONCE[name], torch)
    assert warned(ONCE[name], tw) == []


def test_the_line_is_the_users() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(3):
            tw.tensor(tw.ones(1))
    assert [w.filename for w in seen] == [__file__]


DEPRECATED = """
torch.cholesky(a) | torch.qr(a) | torch.lu(a) | torch.lu_solve(a, *torch.linalg.lu_factor(a))
torch.triangular_solve(a, a) | torch.chain_matmul(a, a) | torch.cross(a, a) | a[0].T
torch.nn.functional.upsample_bilinear(a[None, None], scale_factor=2)
torch.nn.functional.upsample_nearest(a[None, None], scale_factor=2)
torch.where(a.byte(), a, a) | torch.complex(a, a).to(torch.float32) | torch.complex(a, a).float()
torch.set_default_tensor_type(torch.FloatTensor) | (a * 1).requires_grad_().exp().grad
torch.has_cuda | torch.has_mps | torch.has_cudnn
a.index_reduce(0, torch.tensor([0]), a[:1], "amax")
""".replace("\n", "|")


@pytest.mark.parametrize("call", [each.strip() for each in DEPRECATED.split("|") if each.strip()])
def test_deprecated_calls_warn(torch: Any, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the category and the first words of PyTorch's warning."""
    monkeypatch.setattr(location, "_said", set())

    def run(m: Any) -> list[tuple[str, str]]:
        a = m.eye(3) + 1
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            eval(call, {"torch": m, "a": a})
        return [(w.category.__name__, str(w.message)[:24]) for w in found]

    torch.set_warn_always(True)
    try:
        assert run(tw) == run(torch)
    finally:
        torch.set_warn_always(False)


@pytest.mark.parametrize("name", ["symeig", "eig", "solve", "lstsq", "matrix_rank"])
def test_removed_functions_say_what_there_is(torch: Any, name: str) -> None:
    for m in (tw, torch):
        with pytest.raises(RuntimeError, match=r"deprecated since version 1\.9 and is now"):
            a = m.eye(2)
            getattr(m, name)(*[a] * (2 if name in ("solve", "lstsq") else 1))
