"""What is said when a kernel of the user's is launched or declared as it can't be."""

from __future__ import annotations

import pytest

triton = pytest.importorskip("triton")

import fake_cuda  # noqa: E402
import library_kernels as kernels  # noqa: E402
from library_ops import BLOCK, add, scale  # noqa: E402

import tilewright as tw  # noqa: E402
from tilewright.library import triton_op, wrap_triton  # noqa: E402

pytestmark = pytest.mark.triton


def here(text: str, file: str = "test_library_errors.py") -> str:
    return rf"{text}[\s\S]*, at {file}:\d+"


def test_errors_of_a_launch() -> None:
    x = tw.ones(4)
    grid = wrap_triton(kernels.add_kernel)[(1,)]
    with pytest.raises(TypeError, match=here("add_kernel: missing a required argument: 'n'")):
        grid(x, x, x)
    with pytest.raises(TypeError, match=here("unexpected keyword argument 'BLOCKS'")):
        grid(x, x, x, 4, 16, BLOCKS=16)
    with pytest.raises(TypeError, match=here("'y_ptr' must be a Tensor, a number or None, got li")):
        grid(x, [1.0], x, 4, BLOCK=16)
    with pytest.raises(TypeError, match=here("'BLOCK' is a constexpr, which no Tensor can be")):
        grid(x, x, x, 4, BLOCK=x)
    with pytest.raises(TypeError, match=here("'BLOCK' is a constexpr, got a list")):
        grid(x, x, x, 4, BLOCK=[16])
    with pytest.raises(OverflowError, match=here("n=.* has more than 64 bits")):
        grid(x, x, x, 1 << 70, BLOCK=16)
    with pytest.raises(ValueError, match=here("num_ctas is not supported")):
        grid(x, x, x, 4, BLOCK=16, num_ctas=2)
    for bad in ((), (1, 1, 1, 1), (-1,), (1.5,), "xy"):
        with pytest.raises(ValueError, match=here("a grid is one to three numbers")):
            wrap_triton(kernels.add_kernel)[bad](x, x, x, 4, BLOCK=16)
    assert x.tolist() == [1.0] * 4


def test_errors_of_devices() -> None:
    with fake_cuda.installed():
        x, y = tw.ones(4), tw.ones(4, device="cuda")
        where = here("y_ptr on cuda:0, out_ptr on cpu", "library_ops.py")
        with pytest.raises(RuntimeError, match=where):
            add(x, y)


def test_what_is_no_kernel() -> None:
    with pytest.raises(RuntimeError, match=here("wrap_triton only works on functions annotated")):
        wrap_triton(len)
    with pytest.raises(RuntimeError, match=here("a kernel is launched over a grid")):
        wrap_triton(kernels.add_kernel)(tw.ones(3))
    wrapped = wrap_triton(kernels.add_kernel)
    assert wrap_triton(wrapped) is wrapped


def test_debugging_tells_who_interprets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TW_DEBUG", "2")
    scale(tw.ones(11), 4.5).tolist()
    text = capsys.readouterr().err
    assert "tilewright: scale_kernel runs in Triton's interpreter" in text
    assert "def scale_kernel(" in text


@pytest.mark.parametrize("device", ["cpu", "interpret"])
def test_an_error_in_the_kernel_names_the_launch(device: str) -> None:
    x = tw.ones(4, device=device)
    wrap_triton(kernels.fails)[(1,)](x, 4, BLOCK)
    with pytest.raises(
        RuntimeError, match=r"kernel fails \(launched at test_library_errors.py:\d+\)"
    ):
        x.tolist()


def test_undeclared_mutation_is_an_error() -> None:
    @triton_op("tests::careless", mutates_args={})
    def careless(x: tw.Tensor) -> None:
        wrap_triton(kernels.double_in_place)[(1,)](x, 4, BLOCK)

    with pytest.raises(RuntimeError, match="careless writes to its argument 'x', which mutates_ar"):
        careless(tw.ones(4))

    @triton_op("tests::careful", mutates_args={"x"})
    def careful(x: tw.Tensor) -> None:
        wrap_triton(kernels.double_in_place)[(1,)](x, 4, BLOCK)

    x = tw.ones(4)
    assert careful(x) is None and x.tolist() == [2.0] * 4
    with pytest.raises(RuntimeError, match="non-functional operator tests::careful"):
        careful.register_autograd(lambda ctx: None)


def test_a_saved_value_that_a_kernel_overwrites() -> None:
    x = tw.ones(4).requires_grad_()
    y = x * 1
    z = (y * y).sum()
    with tw.no_grad():
        wrap_triton(kernels.double_in_place)[(1,)](y, 4, BLOCK)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()
