"""Calls that bench/sweep.py measures: complex numbers, transforms, matrices, special functions and
random numbers."""

from __future__ import annotations

from collections.abc import Iterator

from sweep_tensors import (
    Call,
    Maker,
    bytes_of,
    floats,
    heads,
    matrices,
    numbers,
    of_length,
    sparse,
    wide,
)

COMPLEX = (
    "exp log sqrt rsqrt reciprocal sin tan acos asinh tanh atanh sigmoid abs angle sgn sum prod "
    "mean"
).split()
TRANSFORMS = "fft ifft rfft irfft fft2 ifft2 rfft2 irfft2".split()
LENGTHS = (16, 60, 64, 127, 256, 1000, 1009, 1024, 4096, 10_007, 65_536, 1 << 20)


def of_complex_numbers() -> Iterator[tuple[str, Call, Maker]]:
    one, two = numbers(1), numbers(2)
    for name in COMPLEX:
        yield f"complex {name}", lambda t, x, name=name: getattr(t, name)(x), one
    yield "complex mul", lambda t, x, y: x * y, two
    yield "complex div", lambda t, x, y: x / y, two
    yield "complex pow", lambda t, x, y: x**y, two
    yield "complex chain", lambda t, x, y: (x * y + x).exp() * y.conj() - 1j, two
    yield "complex sum(0)", lambda t, x: x.sum(0), one
    yield "complex sum(1)", lambda t, x: x.sum(1), one
    yield "complex cumsum", lambda t, x: x.cumsum(1), one
    yield "complex cumprod", lambda t, x: x.cumprod(1), one
    yield "complex contiguous transpose", lambda t, x: x.t().contiguous(), one
    yield "complex cat", lambda t, x, y: t.cat([x, y], 1), two
    yield "complex from parts", lambda t, x: t.complex(x.imag, x.real), one
    yield "complex matmul", lambda t, x, y: x @ y.t(), two
    yield "complex matrix times vector", lambda t, x: x @ x[0], one
    yield "complex bmm", lambda t, x: x.view(-1, 10, 10) @ x.view(-1, 10, 10), one
    yield "complex einsum", lambda t, x, y: t.einsum("ij,ij->i", x, y), two
    yield "complex conv1d", lambda t, x: t.nn.functional.conv1d(x[:, None], x[:4, None, :5]), one


def of_transforms() -> Iterator[tuple[str, Call, Maker]]:
    for name in TRANSFORMS:
        make = floats(1) if name.startswith("rfft") else numbers(1)
        if name.endswith("2"):
            yield f"fft.{name}", lambda t, x, name=name: getattr(t.fft, name)(x), make
        else:
            yield f"fft.{name}", lambda t, x, name=name: getattr(t.fft, name)(x.view(-1)), make
            yield f"fft.{name} of rows", lambda t, x, name=name: getattr(t.fft, name)(x), make
    for n in LENGTHS:
        yield f"fft.fft of {n}", lambda t, x: t.fft.fft(x), of_length(n)
        yield f"fft.rfft of {n}", lambda t, x: t.fft.rfft(x.real), of_length(n)
        yield f"fft.irfft of {n}", lambda t, x, n=n: t.fft.irfft(x, n), of_length(n // 2 + 1)
    yield "fft.fftn", lambda t, x: t.fft.fftn(x.view(10, 10, -1)), numbers(1)
    yield "fft.dim 0", lambda t, x: t.fft.fft(x, dim=0), numbers(1)
    yield "fft.fftshift", lambda t, x: t.fft.fftshift(x), floats(1)
    yield (
        "stft",
        lambda t, x: t.stft(x.reshape(-1), 256, window=t.hann_window(256), return_complex=True),
        floats(1),
    )


def of_matrices() -> Iterator[tuple[str, Call, Maker]]:
    for n in (8, 64, 512):
        of = f"of {n} x {n}"
        make = matrices(n)
        yield f"cholesky {of}", lambda t, a, b: t.linalg.cholesky(a), make
        yield f"solve {of}", lambda t, a, b: t.linalg.solve(a, b), make
        yield f"inv {of}", lambda t, a, b: t.linalg.inv(a), make
        yield f"eigh {of}", lambda t, a, b: t.linalg.eigh(a)[0], make
        yield f"eigvalsh {of}", lambda t, a, b: t.linalg.eigvalsh(a), make
        yield f"svd {of}", lambda t, a, b: t.linalg.svd(a)[1], make
        yield f"svdvals {of}", lambda t, a, b: t.linalg.svdvals(a), make
        yield f"qr {of}", lambda t, a, b: t.linalg.qr(a)[1].abs(), make
        yield f"lu {of}", lambda t, a, b: t.linalg.lu_factor(a)[0], make
        yield f"det {of}", lambda t, a, b: t.linalg.det(a), make
        yield f"slogdet {of}", lambda t, a, b: t.linalg.slogdet(a)[1], make
        yield f"eigvals {of}", lambda t, a, b: t.linalg.eigvals(a).abs().sort().values, make
        yield f"pinv {of}", lambda t, a, b: t.linalg.pinv(a), make
        yield f"lstsq {of}", lambda t, a, b: t.linalg.lstsq(a, b).solution, make
        yield f"matrix_exp {of}", lambda t, a, b: t.linalg.matrix_exp(a * 0.1), make
        yield (
            f"solve_triangular {of}",
            lambda t, a, b: t.linalg.solve_triangular(a, b, upper=False),
            make,
        )
        yield f"cholesky_solve {of}", lambda t, a, b: t.cholesky_solve(b, a), make
        yield f"bmm {of}", lambda t, a, b: a @ a, make
    two = floats(2)
    yield "addmm", lambda t, x, y: t.addmm(x[:, :1].t(), x, y.t()), two
    yield "einsum", lambda t, x, y: t.einsum("ij,ij->i", x, y), two
    yield "outer", lambda t, x, y: t.outer(x[:, 0], y[:, 0]), two
    yield "cdist", lambda t, x, y: t.cdist(x[:, :64], y[:, :64]), two
    yield "cross", lambda t, x, y: t.cross(x[:, :999].view(-1, 3), y[:, :999].view(-1, 3)), wide(2)
    yield "kron", lambda t, x, y: t.kron(x[:10, :10].contiguous(), y[:, :10].contiguous()), two
    yield "csr times dense", lambda t, a, x: a @ x, sparse("csr")
    yield "coo times dense", lambda t, a, x: a @ x, sparse("coo")
    yield "csr times vector", lambda t, a, x: a @ x[:, 0], sparse("csr")
    yield "coo to dense", lambda t, a, x: a.to_dense(), sparse("coo")
    yield (
        "coalesce",
        lambda t, a, x: t.sparse_coo_tensor(a.indices(), a.values(), a.shape).coalesce().values(),
        sparse("coo"),
    )
    yield "int8 matmul", lambda t, x: t._int_mm(x, x.t()), bytes_of
    yield "attention", lambda t, x: t.nn.functional.scaled_dot_product_attention(x, x, x), heads


SPECIAL = (
    "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 entr erfcx exp2 gammaln i0e i1 i1e log_ndtr "
    "modified_bessel_i0 modified_bessel_k0 modified_bessel_k1 ndtr scaled_modified_bessel_k0 "
    "spherical_bessel_j0"
).split()


def special() -> Iterator[tuple[str, Call, Maker]]:
    for name in SPECIAL:
        yield f"special.{name}", lambda t, x, name=name: getattr(t.special, name)(x), floats(1, 0.1)
    yield "special.ndtri", lambda t, x: t.special.ndtri(x), floats(1, 0.01)
    yield "special.logit", lambda t, x: t.special.logit(x, 1e-6), floats(1, 0.01)
    yield "special.polygamma", lambda t, x: t.special.polygamma(1, x), floats(1, 0.3)
    yield "special.multigammaln", lambda t, x: t.special.multigammaln(x + 2, 3), floats(1, 0.3)
    yield "special.zeta", lambda t, x, y: t.special.zeta(x + 1, y), floats(2, 0.3)
    yield "special.xlog1py", lambda t, x, y: t.special.xlog1py(x, y), floats(2, 0.1)
    yield (
        "special.chebyshev_polynomial_t",
        lambda t, x: t.special.chebyshev_polynomial_t(x, 7),
        floats(1),
    )


RANDOM = {
    "rand_like",
    "randn_like",
    "randint",
    "bernoulli",
    "dropout",
    "exponential_",
    "multinomial",
    "randperm",
    "normal",
}
"""Ops whose values PyTorch draws otherwise."""


def of_chance() -> Iterator[tuple[str, Call, Maker]]:
    one = floats(1)
    yield "rand_like", lambda t, x: t.rand_like(x), one
    yield "randn_like", lambda t, x: t.randn_like(x), one
    yield "randint", lambda t, x: t.randint(0, 100, x.shape), one
    yield "bernoulli", lambda t, x: t.bernoulli(x), floats(1, 0.0)
    yield "dropout", lambda t, x: t.nn.functional.dropout(x, 0.5), one
    yield "exponential_", lambda t, x: t.empty_like(x).exponential_(), one
    yield "normal", lambda t, x: t.normal(0.0, 1.0, x.shape), one
    yield "multinomial", lambda t, x: t.multinomial(x, 5), floats(1, 0.1)
    yield "randperm", lambda t, x: t.randperm(x.numel()), one
