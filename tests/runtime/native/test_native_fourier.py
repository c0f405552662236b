"""Native Fourier transforms beside NumPy's in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from tilewright.ir.numeric import fourier as transforms
from tilewright.runtime.native import fourier, host, pool

if host.reason_against() is not None:
    pytest.skip(str(host.reason_against()), allow_module_level=True)

SIZES = (1, 2, 3, 4, 5, 6, 9, 16, 30, 60, 64, 128, 1000, 1024, 7, 22, 127)
BOUND = {"F": 5e-7, "D": 1e-15}


def drawn(dtype: str, *shape: int) -> Any:
    rng = np.random.default_rng(0)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def same(found: Any, expected: Any, dtype: str) -> None:
    assert found.shape == expected.shape and found.real.dtype == np.dtype(dtype).type().real.dtype
    error = np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30)
    assert error < BOUND[dtype], error


def check(x: Any, axis: int, dtype: str) -> None:
    size, wide = x.shape[axis], x.astype(complex)
    moved = fourier.transform(x, axis, False, 1.0, size, "complex", "complex")
    same(moved, np.fft.fft(wide, axis=axis), dtype)
    back = fourier.transform(x, axis, True, 1 / size, size, "complex", "complex")
    same(back, np.fft.ifft(wide, axis=axis), dtype)
    real = np.ascontiguousarray(x.real)
    half = fourier.transform(real, axis, False, 1.0, size, "real", "half")
    same(half, np.fft.rfft(real.astype(float), axis=axis), dtype)
    parts = fourier.transform(x, axis, False, 1.0, size, "real", "half")
    np.testing.assert_array_equal(parts, half)
    half = half + np.asarray(1j, dtype)  # the imaginary parts at the ends don't count
    whole = fourier.transform(half, axis, True, 1 / size, size, "half", "real")
    same(whole, np.fft.irfft(half.astype(complex), size, axis=axis), dtype)


@pytest.mark.parametrize("dtype", ["F", pytest.param("D", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "shape, axis", [((37, -1), 1), ((3, -1, 7), 1), ((-1, 33), 0), ((1, -1, 1), 1)]
)
def test_short_lines(dtype: str, shape: tuple[int, ...], axis: int) -> None:
    for size in SIZES:
        check(drawn(dtype, *(size if n < 0 else n for n in shape)), axis, dtype)


@pytest.mark.parametrize("dtype", ["F", "D"])
def test_lines_that_are_cut(dtype: str) -> None:
    for size in (256, 1000, 3**7 * 16, 1 << 15):
        check(drawn(dtype, 2, size), 1, dtype)
    for size in (3**7, 5**5):  # of odd length
        check(drawn(dtype, 1, size), 1, dtype)


@pytest.mark.parametrize("dtype", ["F", "D"])
@pytest.mark.parametrize("lines", [1, 3, 40])
def test_few_and_many_lines_that_are_cut(dtype: str, lines: int) -> None:
    """Into rows and columns that fill the lanes, and that don't; and halves that are cut."""
    for size in (320, 512, 1024, 2000, 6400):
        check(drawn(dtype, lines, size), 1, dtype)


def test_cut_lines_in_place() -> None:
    for size in (256, 1000, 4096):
        x = drawn("F", 20, size)
        expected = np.fft.fft(x.astype(complex))
        assert fourier.transform(x, 1, False, 1.0, size, "complex", "complex", x) is x
        same(x, expected, "F")


@pytest.mark.parametrize("shape", [(0, 256), (5, 300), (64, 9), (16, 512)])
def test_real_parts_and_lines_that_lie_apart(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transforms, "native", fourier)
    monkeypatch.setattr(transforms, "ENOUGH", 0)
    z = drawn("F", *shape)
    wide = z.astype(complex)
    for x in (z, z[:, ::2], z[::-1], z.T):
        exact = x.astype(complex)
        for axis in (0, 1):
            if x.shape[axis]:
                whole = transforms.complex_to_complex(x, (axis,), False, "backward")
                half = transforms.real_to_complex(x, (axis,), False, "backward")
                if x.size:
                    same(whole, np.fft.fft(exact, axis=axis), "F")
                    same(half, np.fft.rfft(exact.real, axis=axis), "F")
                else:
                    assert whole.shape == x.shape and 0 in half.shape
    np.testing.assert_array_equal(z, wide.astype(z.dtype))


@pytest.mark.parametrize("width", [16, 32, 64])
def test_registers_of_other_widths(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    own = host.machine()
    if width > own.vector_bytes:
        pytest.skip("this processor has none so wide")
    narrow = replace(own, vector_bytes=width)
    if width == 32 and own.triple.startswith("x86_64"):
        narrow = replace(narrow, cpu="haswell", features="")
    caches = (
        *(fourier._kernel, fourier._passes, fourier._mixing, fourier.passes, fourier._tables),
        *(fourier._longer, fourier._chirp),
    )
    monkeypatch.setattr(host, "machine", lambda: narrow)
    for cache in caches:
        cache.cache_clear()
    try:
        for dtype in BOUND:
            for size in (6, 22, 100, 512, 1000):
                check(drawn(dtype, 19, size), 1, dtype)
            check(drawn(dtype, 2, 50, 11), 1, dtype)
    finally:
        for cache in caches:
            cache.cache_clear()


def test_what_is_served() -> None:
    assert fourier.serves((64, 60), (60,), np.float32)
    assert fourier.serves((64, 7), (7,), np.complex64)
    assert not fourier.serves((64, 10007), (10007,), np.complex64)  # a large prime
    assert not fourier.serves((1, 1009), (1009,), np.complex64)  # and a single line
    assert not fourier.serves((2, 60), (60,), np.complex64)  # few lines, too short to cut
    assert not fourier.serves((0, 60), (60,), np.complex64)
    assert not fourier.serves((64, 60), (60,), np.float16)


@pytest.mark.parametrize("norm", ["backward", "forward", "ortho"])
def test_norms_and_axes(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transforms, "native", fourier)
    x = drawn("D", 24, 10, 30)
    real = np.ascontiguousarray(x.real)
    found, axes = {}, (0, 2)
    for native in (fourier, None):
        monkeypatch.setattr(transforms, "native", native)
        half = transforms.real_to_complex(real, axes, False, norm)
        found[native] = [
            *[transforms.complex_to_complex(x, axes, inverse, norm) for inverse in (False, True)],
            half,
            transforms.real_to_complex(real, axes, True, norm),
            *[
                transforms.complex_to_real(half, axes, 30, inverse, norm)
                for inverse in (True, False)
            ],
        ]
    for ours, other in zip(found[fourier], found[None], strict=True):
        assert ours.dtype == other.dtype and ours.flags.c_contiguous
        np.testing.assert_allclose(ours, other, rtol=0, atol=1e-13 * np.abs(other).max())


def test_the_bits_on_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fourier, "WORTH", 1)
    for lines, size in ((99, 60), (2, 4096), (7, 1024)):
        x = drawn("F", lines, size)
        found: list[list[Any]] = []
        for threads in (1, 3):
            monkeypatch.setattr(pool, "num_threads", lambda threads=threads: threads)
            whole = fourier.transform(x, 1, False, 1.0, size, "complex", "complex")
            half = fourier.transform(x, 1, False, 1.0, size, "real", "half")
            back = fourier.transform(half, 1, True, 1.0, size, "half", "real")
            found.append([whole, half, back])
        for one, other in zip(*found, strict=True):
            np.testing.assert_array_equal(one, other)
