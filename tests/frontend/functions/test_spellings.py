"""Spellings of calls that PyTorch takes beside the usual: NumPy's names, Python's types, and
numbers between tensors."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import tilewright

NUMPYS = (
    """
sum(a, axis=1, keepdims=True)|mean(a, axis=0)|stack([a, a], axis=1)|cat([a, a], axis=1)
squeeze(a[:1], axis=0)|unsqueeze(a, axis=0)|sort(a, axis=0).values|cumsum(a, axis=1)
cumprod(a, axis=0)|softmax(a, axis=1)|log_softmax(a, axis=0)|gather(a, axis=0, index=i)
index_select(a, axis=0, index=i[0])|logsumexp(a, axis=1)|median(a, axis=1).values
kthvalue(a, k=1, axis=1).values|topk(a, k=2, axis=0).values|nansum(a, axis=1)
count_nonzero(a, axis=1)|diff(a, axis=0)|argmax(a, axis=1)|max(a, axis=1).values
amax(a, axis=1, keepdims=True)|std(a, axis=1)|var(a, axis=1, keepdims=True)|prod(a, axis=1)
any(a > 0, axis=1)|all(a > 0, axis=1, keepdims=True)|abs(x=a)|sin(a=a)|exp(x1=a)
maximum(x1=a, x2=a * 2)|mul(x=a, x2=a)|split(a, 1, dim=0)[1]|chunk(a, 2, axis=0)[1]
unbind(a, axis=1)[0]|roll(a, 1, dims=0)|norm(a, p=2, dim=0)|swapaxes(a, axis0=0, axis1=1)
unflatten(a, dim=1, sizes=(1, 3))|narrow(a, dim=1, start=0, length=2)|select(a, dim=1, index=0)
nanmean(a, axis=1)|logcumsumexp(a, axis=1)|cummax(a, axis=1).values|mode(a, axis=1).values
aminmax(a, dim=1).max|renorm(a, p=2, axis=0, maxnorm=1)|take_along_dim(a, i, axis=0)
zeros(2, dtype=int)|ones(2, dtype=float)|arange(3, dtype=float)|sum(a, dtype=int)
full((2,), 1, dtype=bool)|ones(2).to(int)|ones(2).to("cpu", float)|ones(2).to(dtype=bool)
iinfo(int).max|fft.fft(a, axis=0)|fft.irfft(a, axis=1, n=4)|fft.rfftn(a, axis=(1, 0))
fft.fft2(x=a)|fft.fftshift(a, axis=0)|fft.ifftshift(a=a)|linalg.norm(a, axis=0, keepdims=True)
matmul(x=a, x2=a)|abs(a).matmul(x2=a)|abs(a).mul(x2=a)|add(x1=a, x2=a, alpha=2)
abs(a).sub(x2=a)|sum(x=a, axis=0)|select(a=a, axis=1, index=0)
max(a=a, axis=1, keepdims=True).values|mean(x=a)|reshape(x=a, shape=(9,))
permute(x=a, dims=(1, 0))|clamp(x=a, max=0)|nn.functional.linear(x=a, weight=a)|zeros_like(a=a)
linalg.matrix_norm(a=a)|unbind(x=a, axis=1)[0]|transpose_copy(x=a, dim0=0, dim1=1)
linalg.vector_norm(a, axis=1, keepdims=True)|linalg.matrix_norm(a, axis=(0, 1), keepdims=True)
linalg.cross(a, a + 1, axis=0)|linalg.vecdot(a, a, axis=0)|roll(a, 1, None)
""".strip()
    .replace("\n", "|")
    .split("|")
)


@pytest.mark.parametrize("call", NUMPYS)
def test_names_of_numpy_and_types_of_python(torch: Any, call: str) -> None:
    def run(T: Any) -> Any:
        a = T.tensor(np.random.RandomState(0).randn(3, 3))
        i = T.tensor([[0, 2, 1]])
        found = eval(
            f"T.{call}", {"T": T, "a": a, "i": i, "int": int, "float": float, "bool": bool}
        )
        return found.numpy() if isinstance(found, T.Tensor) else np.asarray(found)

    ours, theirs = run(tilewright), run(torch)
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


OLDER = (
    """
add(a, 2, a)|add(a[0], 2, a)|a.clone().add_(-0.5, a)|sub(a, 2, a)|addcmul(a, 3, a, a)
a.clone().addcmul_(0.1, a, a)|a.clone().addcdiv_(-0.1, a, a)|addmm(2, a, 3, a, a)
addmm(2, a, a, a)|a.clone().addmm_(2, 3, a, a)|addmv(2, a[0], 3, a, a[0])|baddbmm(2, b, 3, b, b)
addbmm(2, a, 3, b, b)|addr(2, a, 3, a[0], a[0])
""".strip()
    .replace("\n", "|")
    .split("|")
)


@pytest.mark.parametrize("call", OLDER)
def test_numbers_between_tensors(torch: Any, call: str) -> None:
    def run(T: Any) -> Any:
        a = T.tensor(np.random.RandomState(0).randn(3, 3))
        written = call if call.startswith("a.") else f"T.{call}"
        return eval(written, {"T": T, "a": a, "b": a[None]}).numpy()

    with pytest.warns(UserWarning, match="This overload of"):
        ours = run(tilewright)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns once in a process
        theirs = run(torch)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_unknown_names_are_errors() -> None:
    a = tilewright.ones(2, 2)
    for call in (
        lambda: tilewright.softmax(a, dims=1),
        lambda: tilewright.sin(a, x=a),
        lambda: tilewright.mul(a, a, axis=1),
        lambda: tilewright.stack([a], dim=0, axis=0),
        lambda: a.unsqueeze(dim=0, keepdims=True),
        lambda: a.mul(a, a),
        lambda: a.mul(a, x2=a),
        lambda: a.mul(),
        lambda: a.mul("a"),
        lambda: tilewright.sum(a, 0, axis=0),
        lambda: tilewright.sum(axis=0),
        lambda: tilewright.flip(a, axis=(0,)),
    ):
        with pytest.raises(TypeError):
            call()


def test_every_alias_has_its_own_name(torch: Any) -> None:
    for T in (tilewright, torch):
        assert T.clip.__name__ == "clip" and T.clamp.__name__ == "clamp" and T.clip is not T.clamp
        assert T.Tensor.multiply_.__name__ == "multiply_" and T.Tensor.mul_.__name__ == "mul_"
    assert pickle.loads(pickle.dumps(tilewright.absolute))(tilewright.tensor([-1])).item() == 1


def test_result_types_of_numbers_and_their_names(torch: Any) -> None:
    def found(T: Any) -> list[str]:
        t = T.tensor([1])
        types = [T.result_type(1, 2.0), T.result_type(True, True), T.result_type(1j, 1)]
        types += [T.result_type(scalar1=1, scalar2=2), T.result_type(scalar=1.0, tensor=t)]
        types += [T.result_type(tensor=t, other=True)]
        return [str(t) for t in types] + [str(T.can_cast(from_=T.int8, to=T.bool))]

    assert found(tilewright) == found(torch)


@pytest.mark.parametrize("name", ["add", "sub"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float32"])
def test_factors_of_numbers_and_types_that_differ(torch: Any, name: str, dtype: str) -> None:
    for first in (0.3333, 1, "bool", "int8", "int64", "float32", "float16"):
        for alpha in (0.6667, 2):
            found: list[Any] = []
            for m in (tilewright, torch):
                x = m.tensor([[1, 0]]).to(getattr(m, dtype))
                y = m.tensor([[1, 3]]).to(getattr(m, first)) if isinstance(first, str) else first
                try:
                    value = getattr(m, name)(y, x, alpha=alpha)
                    found.append((str(value.dtype), value.double().numpy()))
                except RuntimeError as error:
                    found.append((str(error)[:40], np.zeros(0)))
            assert found[0][0].endswith(found[1][0].removeprefix("torch"))
            np.testing.assert_allclose(found[0][1], found[1][1], 1e-3)


def test_first_calls_and_later_ones_take_the_same_arguments() -> None:
    """A function's code is written once it has been called often."""
    from tilewright.functions import spellings

    @spellings.also_named(scale="factor")
    def scaled(input: Any, factor: int = 2, *, dim: int = 0) -> Any:
        return input, factor, dim

    for _ in range(2 * spellings._OFTEN):
        assert scaled(1) == (1, 2, 0) == scaled(x=1)
        assert scaled(1, 3, dim=4) == (1, 3, 4) == scaled(1, scale=3, axis=4)
        with pytest.raises(TypeError, match="scaled"):
            scaled()
        with pytest.raises(TypeError, match="factor"):
            scaled(1, factor=2, scale=3)
        with pytest.raises(TypeError, match="other"):
            scaled(1, other=2)
    assert scaled.__code__ is not spellings._first.__code__
