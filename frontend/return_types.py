"""The named tuples that functions with several results return, as torch.return_types has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from ._tensor import Tensor


class Indexed(NamedTuple):
    """Values and their positions."""

    values: Tensor
    indices: Tensor


class Bounds(NamedTuple):
    min: Tensor
    max: Tensor


class Parts(NamedTuple):
    """x = mantissa * 2**exponent."""

    mantissa: Tensor
    exponent: Tensor


class Factor(NamedTuple):
    """A result, and int32 `info`: 0 where it was found."""

    L: Tensor
    info: Tensor


class Inverse(NamedTuple):
    inverse: Tensor
    info: Tensor


class Solved(NamedTuple):
    result: Tensor
    info: Tensor


class QR(NamedTuple):
    Q: Tensor
    R: Tensor


class Eigen(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class SVD(NamedTuple):
    """A = U diag(S) Vh."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class TurnedSVD(NamedTuple):
    """A = U diag(S) V^H."""

    U: Tensor
    S: Tensor
    V: Tensor


class SignedLog(NamedTuple):
    sign: Tensor
    logabsdet: Tensor


class PLU(NamedTuple):
    P: Tensor
    L: Tensor
    U: Tensor


class LU(NamedTuple):
    LU: Tensor
    pivots: Tensor


class CheckedLU(NamedTuple):
    LU: Tensor
    pivots: Tensor
    info: Tensor


class LDL(NamedTuple):
    LD: Tensor
    pivots: Tensor


class CheckedLDL(NamedTuple):
    LD: Tensor
    pivots: Tensor
    info: Tensor


class LeastSquares(NamedTuple):
    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


class Reflectors(NamedTuple):
    a: Tensor
    tau: Tensor


class Substituted(NamedTuple):
    solution: Tensor
    cloned_coefficient: Tensor


class Histogram(NamedTuple):
    hist: Tensor
    bin_edges: Tensor


class HistogramDD(NamedTuple):
    hist: Tensor
    bin_edges: tuple[Tensor, ...]


R = TypeVar("R", bound=tuple[Any, ...])


def _returned(name: str, base: type[R]) -> type[R]:
    fields = base._fields  # type: ignore[attr-defined]

    def text(self: Any) -> str:
        listed = ",\n".join(f"{f}={getattr(self, f)!r}" for f in fields)
        return f"torch.return_types.{name}(\n{listed})"

    return type(name, (base,), {"__slots__": (), "__repr__": text, "__module__": __name__})


max = _returned("max", Indexed)
min = _returned("min", Indexed)
sort = _returned("sort", Indexed)
topk = _returned("topk", Indexed)
median = _returned("median", Indexed)
nanmedian = _returned("nanmedian", Indexed)
kthvalue = _returned("kthvalue", Indexed)
mode = _returned("mode", Indexed)
cummax = _returned("cummax", Indexed)
cummin = _returned("cummin", Indexed)
aminmax = _returned("aminmax", Bounds)
histogram = _returned("histogram", Histogram)
histogramdd = _returned("histogramdd", HistogramDD)
frexp = _returned("frexp", Parts)
linalg_cholesky_ex = _returned("linalg_cholesky_ex", Factor)
linalg_inv_ex = _returned("linalg_inv_ex", Inverse)
linalg_solve_ex = _returned("linalg_solve_ex", Solved)
linalg_qr = _returned("linalg_qr", QR)
linalg_eigh = _returned("linalg_eigh", Eigen)
linalg_eig = _returned("linalg_eig", Eigen)
linalg_svd = _returned("linalg_svd", SVD)
linalg_slogdet = _returned("linalg_slogdet", SignedLog)
linalg_lu = _returned("linalg_lu", PLU)
linalg_lu_factor = _returned("linalg_lu_factor", LU)
linalg_lu_factor_ex = _returned("linalg_lu_factor_ex", CheckedLU)
linalg_ldl_factor = _returned("linalg_ldl_factor", LDL)
linalg_ldl_factor_ex = _returned("linalg_ldl_factor_ex", CheckedLDL)
linalg_lstsq = _returned("linalg_lstsq", LeastSquares)
qr = _returned("qr", QR)
svd = _returned("svd", TurnedSVD)
slogdet = _returned("slogdet", SignedLog)
lu_unpack = _returned("lu_unpack", PLU)
geqrf = _returned("geqrf", Reflectors)
triangular_solve = _returned("triangular_solve", Substituted)
