"""complex32 beside PyTorch, which holds, moves, converts, adds and multiplies it on CPUs."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.runtime import tiers

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.computes, pytest.mark.filterwarnings("ignore")]

Call = Callable[[Any, Any, Any], Any]
X = [[1 + 2j, 3.5 - 1j], [0.1 - 0.7j, 60000 + 0j]]
Y = [[0.3 + 0.1j, -2j], [1.7 - 0.9j, 2 + 1e-6j]]

VALUES: dict[str, Call] = {
    "add": lambda m, x, y: x + y,
    "sub": lambda m, x, y: x - y,
    "mul": lambda m, x, y: x * y,
    "neg": lambda m, x, y: -x,
    "numbers": lambda m, x, y: (x + 1, x * 1j, 2 - x),
    "with half": lambda m, x, y: x * m.ones(2, 2, dtype=m.half),
    "with float": lambda m, x, y: x * m.ones(2, 2),
    "addcmul": lambda m, x, y: m.addcmul(x, x, y),
    "abs": lambda m, x, y: x.abs(),
    "sgn": lambda m, x, y: y.sgn(),
    "conj": lambda m, x, y: (x.conj() * 1, x.resolve_conj()),
    "compared": lambda m, x, y: (x == y, x != y, m.isclose(x, y), m.allclose(x, x)),
    "parts": lambda m, x, y: (x.real, x.imag, m.view_as_real(x), x.view(m.half)),
    "from parts": lambda m, x, y: m.complex(x.real, y.real),
    "view_as_complex": lambda m, x, y: m.view_as_complex(m.view_as_real(x) + 1),
    "conversions": lambda m, x, y: (x.cfloat(), x.cdouble(), x.half(), x.float(), x.bool()),
    "converted": lambda m, x, y: (y.cdouble().chalf(), y.real.chalf(), m.arange(3).chalf()),
    "cat": lambda m, x, y: (m.cat([x, y], 1), m.stack([x, y])),
    "where": lambda m, x, y: (m.where(x.real > 1, x, y), x.masked_fill(x.real > 1, 0)),
    "index": lambda m, x, y: (x[[1, 0]], x[x.real > 1], x.index_select(1, m.tensor([1]))),
    "moved": lambda m, x, y: (x.T.clone(), x.roll(1), x.repeat(1, 2), x[:, None].expand(2, 3, 2)),
    "padded": lambda m, x, y: (m.nn.functional.pad(x, (1, 2)), x.tril()),
    "written": lambda m, x, y: (x.clone().fill_(2j), x.clone().copy_(y), x.clone().add_(y)),
    "parts written": lambda m, x, y: _doubled(x.clone()),
    "index_add": lambda m, x, y: x.index_add(0, m.tensor([0, 1]), y),
    "counts": lambda m, x, y: (x.isnan(), x.isfinite(), x.any(), x.all(), x.count_nonzero()),
    "made": lambda m, x, y: (m.zeros(2, dtype=m.chalf), m.full((2,), 1 + 1j, dtype=m.complex32)),
    "gradient": lambda m, x, y: _gradient(m, x, y),
}

REFUSED: dict[str, Call] = {
    "exp": lambda m, x, y: x.exp(),
    "div": lambda m, x, y: x / y,
    "sum": lambda m, x, y: x.sum(),
    "matmul": lambda m, x, y: x @ y,
    "sqrt": lambda m, x, y: x.sqrt(),
    "less": lambda m, x, y: x < y,
    "eye": lambda m, x, y: m.eye(2, dtype=m.chalf),
    "linspace": lambda m, x, y: m.linspace(0, 1, 3, dtype=m.chalf),
    "arange": lambda m, x, y: m.arange(3, dtype=m.chalf),
    "unique": lambda m, x, y: x.unique(),
    "numpy": lambda m, x, y: x.numpy(),
}


def _doubled(x: Any) -> Any:
    x.real.mul_(2)
    return x


def _gradient(m: Any, x: Any, y: Any) -> Any:
    x = x.clone().requires_grad_()
    m.view_as_real(x * y).float().pow(2).mul(1e-3)[:1].sum().backward()
    return x.grad


def arrays(found: Any) -> list[np.ndarray]:
    given = found if isinstance(found, tuple) else (found,)
    out = []
    for t in given:
        if not hasattr(t, "dtype"):
            out.append(np.asarray(t))
            continue
        t = t.detach().cpu().resolve_conj()
        out.append(np.asarray(str(t.dtype)))
        wide = t.cfloat() if str(t.dtype) == "torch.complex32" else t
        out.append(wide.numpy())
    return out


def agree(call: Call, **options: Any) -> None:
    given = [m.tensor(v, dtype=m.complex32) for m in (tw, torch) for v in (X, Y)]
    if options:
        given[:2] = [t.to(**options) for t in given[:2]]
    ours, theirs = arrays(call(tw, *given[:2])), arrays(call(torch, *given[2:]))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b) if a.dtype.kind != "c" and a.dtype.kind != "f" else (
            np.testing.assert_allclose(a, b, rtol=1e-3)
        )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("tier", [tiers.FUSED, tiers.BASELINE])
@pytest.mark.parametrize("name", VALUES)
def test_values(name: str, tier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "mode", tier)
    agree(VALUES[name])


@pytest.mark.triton
@pytest.mark.parametrize("name", ["mul", "abs", "parts", "cat", "written"])
def test_on_the_gpu_path(name: str) -> None:
    agree(VALUES[name], device="interpret")


@pytest.mark.parametrize("name", REFUSED)
def test_errors(name: str) -> None:
    for m in (torch, tw):
        given = [m.tensor(v, dtype=m.complex32) for v in (X, Y)]
        with pytest.raises((NotImplementedError, TypeError)) as found:
            REFUSED[name](m, *given)
        assert "ComplexHalf" in str(found.value) or "complex32" in str(found.value)


DTYPES = "bool int64 float16 bfloat16 float32 float64 complex32 complex64 complex128".split()


@pytest.mark.parametrize("other", DTYPES)
def test_promotion(other: str) -> None:
    def kinds(m: Any) -> list[str]:
        x, y = m.ones(2, dtype=m.complex32), m.ones(2, dtype=getattr(m, other))
        pairs = ((x, y), (x[0], y), (x, y[0]), (y, 1j))
        return [str(m.result_type(*p)) for p in pairs] + [str(m.promote_types(x.dtype, y.dtype))]

    assert kinds(tw) == kinds(torch)


def test_the_type_itself() -> None:
    for m in (tw, torch):
        assert m.chalf is m.complex32 and m.complex32.itemsize == 4 and m.complex32.is_complex
        assert m.complex32.to_real() is m.float16 and m.float16.to_complex() is m.complex32
    assert repr(tw.tensor(X, dtype=tw.chalf)) == repr(torch.tensor(X, dtype=torch.chalf))
    assert tw.tensor(X, dtype=tw.chalf).tolist() == torch.tensor(X, dtype=torch.chalf).tolist()


def test_files() -> None:
    for source, target in ((tw, torch), (torch, tw), (tw, tw)):
        file = io.BytesIO()
        source.save(source.tensor(X, dtype=source.complex32), file)
        file.seek(0)
        found = target.load(file)
        assert found.dtype is target.complex32
        assert found.tolist() == torch.tensor(X, dtype=torch.complex32).tolist()
