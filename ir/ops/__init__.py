"""The primitives and composites, one family a file.

`from tilewright.ir import ops`, then `ops.add(x, y)`.
"""

# ruff: noqa: F401 -- all of it is re-exported

from . import operators
from .activation import (
    at_least,
    at_most,
    celu,
    clamp,
    elu,
    gelu,
    glu,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    log_softmax,
    logsigmoid,
    logsumexp,
    mish,
    prelu,
    relu6,
    selu,
    silu,
    softmax,
    softplus,
    softshrink,
    softsign,
    tanhshrink,
    threshold,
    within,
)
from .attention import (
    safe_softmax,
    scaled_dot_product_attention,
)
from .bessel import (
    airy_ai,
    i0,
    i0e,
    i1,
    i1e,
    j0,
    j1,
    k0,
    k0e,
    k1,
    k1e,
    y0,
    y1,
)
from .binary import (
    add,
    atan2,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    copysign,
    div,
    eq,
    floor_divide,
    fmod,
    gcd,
    ge,
    gt,
    le,
    lt,
    maximum,
    minimum,
    mul,
    ne,
    pow,
    remainder,
    shift_left,
    shift_right,
    sub,
    zeta,
)
from .check import check, checked, made_alone, require, unmet, within_unit
from .classification import (
    cross_entropy,
    nll_loss,
)
from .complex import conj, conj_op, imag, real
from .complex import make as complex
from .contraction import (
    conv,
    conv_input_grad,
    conv_weight_grad,
    conv_weight_grad_wide,
    matmul,
    matmul_fast,
    matmul_wide,
    product,
)
from .definite import cholesky_inverse, cholesky_solve
from .external import external
from .factors import (
    cholesky,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    geqrf,
    lu,
    matrix_exp,
    permutation,
    qr,
    svd,
    svdvals,
)
from .fourier import back_op as irfft_op
from .fourier import fourier, fourier_half, fourier_op, fourier_real
from .fourier import half_op as rfft_op
from .gamma import gamma_sample
from .gather import (
    gather,
    indexed_shape,
    insertion,
    put_along,
    scatter,
    take_along,
)
from .generate import (
    DRAWS,
    constant,
    constant_op,
    constant_value,
    iota,
    leaf,
    random_bits,
    random_words,
    scalar,
)
from .grouped import grouped_matmul, grouped_mm, grouped_weight_grad
from .host import called, results_of
from .incomplete_gamma import igamma, igammac
from .inverse import cut, inverted, lstsq, pinv
from .linear import (
    addbmm,
    addmm,
    addmv,
    addr,
    baddbmm,
    bilinear,
    dot,
    linear,
    linear_bias_grad,
    linear_input_grad,
    linear_weight_grad,
    mv,
    outer,
)
from .linear_loss import (
    linear_cross_entropy,
)
from .loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    smooth_l1_loss,
)
from .marker import (
    MARKERS,
    alias,
    clone,
    detach,
    empty,
    example,
    inference,
    overwritten,
    point,
    saved,
    variable,
    with_value,
)
from .matrices import (
    adjoint,
    by_column,
    by_matrix,
    by_row,
    identity,
    kept,
    lower,
    on_diagonal,
    succeeded,
    upper,
)
from .movement import (
    cat,
    cat_op,
    expand,
    expand_op,
    flip,
    flip_op,
    fold,
    pad,
    pad_op,
    permute,
    permute_op,
    positions_along,
    reshape,
    reshape_op,
    slice_,
    slice_axis,
    slice_op,
    squeeze,
    sum_to,
    transpose,
    unsqueeze,
    windows,
    windows_op,
)
from .normal import (
    entr,
    erfc_near,
    erfcx,
    log_ndtr,
    ndtr,
    ndtri,
    xlog1py,
    xlogy,
)
from .normalization import (
    batch_mean,
    batch_norm,
    batch_norm_eval,
    batch_variance,
    group_norm,
    instance_norm,
    layer_norm,
    moments,
    normalize,
    normalize_grad,
    rms_norm,
)
from .orthogonal import RECORDS as polynomials
from .orthogonal import orthogonal
from .packed_attention import packed, packed_attention
from .polar import angle, hypot, modulus, sgn, turn, view_as_complex, view_as_real
from .polygamma import digamma, lgamma, polygamma, trigamma_above
from .pooling import (
    adaptive_avg_pool,
    adaptive_max_pool,
    adaptive_max_pool_indices,
    avg_pool,
    max_pool,
    max_pool_indices,
    pool_padding,
)
from .quantized import (
    dequantized_int4,
    fake_quantize,
    integer_matmul,
    linear_by_rows,
    linear_dynamic,
    linear_int4,
    linear_int8,
    quantize,
)
from .random import (
    bernoulli,
    dropout,
    normal,
    randint,
    randperm,
    uniform,
)
from .reduce import (
    all,
    all_op,
    any,
    any_op,
    argmax,
    argmin,
    deviation,
    max,
    max_op,
    mean,
    min,
    min_op,
    prod,
    prod_op,
    sum,
    sum_op,
    variance,
)
from .rows import sum_rows, take_rows
from .scaled import blocks, matmul_by_blocks, scaled_mm
from .scan import (
    argsort,
    argsort_op,
    cummax,
    cummax_index,
    cummax_op,
    cummin,
    cummin_index,
    cummin_op,
    cumprod,
    cumprod_op,
    cumsum,
    cumsum_op,
    logaddexp,
    logcumsumexp,
    logcumsumexp_op,
    zero_index,
)
from .select import (
    first_max,
    first_min,
)
from .solving import (
    cofactors,
    det,
    inv,
    ldl_factor,
    ldl_solve,
    slogdet,
    solve,
    solve_triangular,
    triangular_op,
)
from .strided import (
    diagonal,
    set_diagonal,
    set_strided,
    strided,
)
from .ternary import (
    flat_in,
    where,
)
from .transfer import (
    copy_to,
    copy_to_op,
    fetch,
)
from .unary import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    bitcast,
    bitwise_not,
    cast,
    ceil,
    cos,
    cosh,
    erf,
    erfc,
    erfinv,
    exp,
    exp2,
    expm1,
    floor,
    full_like,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    logical_not,
    neg,
    reciprocal,
    relu,
    root,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
    widened,
    zeros_like,
)
from .update import adam_update, descended, running_mean, running_square
