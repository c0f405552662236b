"""torch.special: special functions, elementwise.

Integers and bools become floats first. `out` receives the result. Functions that PyTorch can't
differentiate give results that require no gradient.
"""

from __future__ import annotations

from tilewright.ir import ops

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
    mvlgamma,
    own,
    own_of_two,
    sinc_of_radians,
)
from .nn.functional import log_softmax, softmax

__all__ = [
    "airy_ai",
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammaln",
    "i0",
    "i0e",
    "i1",
    "i1e",
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
