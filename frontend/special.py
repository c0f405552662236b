"""torch.special: special functions, elementwise.

Integers and bools become floats first. `out` receives the result. Functions that PyTorch can't
differentiate give results that require no gradient.
"""

from __future__ import annotations

from tilewright.ir import ops
from tilewright.ir.numeric.orthogonal import (
    CHEBYSHEV_T,
    CHEBYSHEV_U,
    CHEBYSHEV_V,
    CHEBYSHEV_W,
    HERMITE_H,
    HERMITE_HE,
    LAGUERRE,
    LEGENDRE,
)

from .functions.composed import logit, polygamma, sinc, xlogy
from .functions.elementwise import (
    digamma,
    erf,
    erfc,
    erfinv,
    exp2,
    expm1,
    lgamma,
    log1p,
    round,
    sigmoid,
)
from .functions.reduction import logsumexp
from .functions.special import (
    i0,
    igamma,
    igammac,
    mvlgamma,
    own,
    own_of_two,
    polynomial,
    sinc_of_radians,
)
from .nn.functional import log_softmax, softmax

__all__ = [
    "airy_ai",
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammainc",
    "gammaincc",
    "gammaln",
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
    "log1p",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "modified_bessel_i0",
    "modified_bessel_i1",
    "modified_bessel_k0",
    "modified_bessel_k1",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "round",
    "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
    "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
    "sinc",
    "softmax",
    "spherical_bessel_j0",
    "xlog1py",
    "xlogy",
    "zeta",
]

psi = digamma
expit = sigmoid
gammaln = lgamma
multigammaln = mvlgamma
gammainc = igamma
gammaincc = igammac

airy_ai = own("airy_ai", ops.airy_ai)
bessel_j0 = own("bessel_j0", ops.j0)
bessel_j1 = own("bessel_j1", ops.j1)
bessel_y0 = own("bessel_y0", ops.y0)
bessel_y1 = own("bessel_y1", ops.y1)
entr = own("entr", ops.entr, halves=True, derivative=True)
erfcx = own("erfcx", ops.erfcx, derivative=True)
i0e = own("i0e", ops.i0e, halves=True, derivative=True)
i1 = own("i1", ops.i1, halves=True, derivative=True)
i1e = own("i1e", ops.i1e, halves=True, derivative=True)
log_ndtr = own("log_ndtr", ops.log_ndtr, derivative=True)
modified_bessel_i0 = own("modified_bessel_i0", ops.i0)
modified_bessel_i1 = own("modified_bessel_i1", ops.i1)
modified_bessel_k0 = own("modified_bessel_k0", ops.k0)
modified_bessel_k1 = own("modified_bessel_k1", ops.k1)
ndtr = own("ndtr", ops.ndtr, halves=True, derivative=True)
ndtri = own("ndtri", ops.ndtri, derivative=True)
scaled_modified_bessel_k0 = own("scaled_modified_bessel_k0", ops.k0e)
scaled_modified_bessel_k1 = own("scaled_modified_bessel_k1", ops.k1e)
spherical_bessel_j0 = own("spherical_bessel_j0", sinc_of_radians)
xlog1py = own_of_two("xlog1py", ops.xlog1py, halves=True, derivative=True)
zeta = own_of_two("zeta", ops.zeta, derivative=True)

chebyshev_polynomial_t = polynomial("chebyshev_polynomial_t", CHEBYSHEV_T)
chebyshev_polynomial_u = polynomial("chebyshev_polynomial_u", CHEBYSHEV_U)
chebyshev_polynomial_v = polynomial("chebyshev_polynomial_v", CHEBYSHEV_V)
chebyshev_polynomial_w = polynomial("chebyshev_polynomial_w", CHEBYSHEV_W)
hermite_polynomial_h = polynomial("hermite_polynomial_h", HERMITE_H)
hermite_polynomial_he = polynomial("hermite_polynomial_he", HERMITE_HE)
laguerre_polynomial_l = polynomial("laguerre_polynomial_l", LAGUERRE)
legendre_polynomial_p = polynomial("legendre_polynomial_p", LEGENDRE)
shifted_chebyshev_polynomial_t = polynomial(
    "shifted_chebyshev_polynomial_t", CHEBYSHEV_T, shifted=True
)
shifted_chebyshev_polynomial_u = polynomial(
    "shifted_chebyshev_polynomial_u", CHEBYSHEV_U, shifted=True
)
shifted_chebyshev_polynomial_v = polynomial(
    "shifted_chebyshev_polynomial_v", CHEBYSHEV_V, shifted=True
)
shifted_chebyshev_polynomial_w = polynomial(
    "shifted_chebyshev_polynomial_w", CHEBYSHEV_W, shifted=True
)
