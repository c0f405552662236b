"""Dtypes that PyTorch refuses on the CPU and that tilewright computes, by reason.

`tools/op_db.py --refused` prints what is missing here, and what is here and refused by now.
"""

from __future__ import annotations

_UNSIGNED = "uint16 uint32 uint64"
_WHOLE = f"uint8 int8 int16 int32 int64 {_UNSIGNED}"

_DIFFERENCES = {
    (
        "Unsigned numbers of 16 bits and more are computed as others are.",
        _UNSIGNED,
    ): """
        abs add geometric clamp_max clamp_min sub addmm addmm:decomposed addmv addbmm baddbmm
        dot vdot bmm mv addr addcmul bitwise_not combinations clamp cross cummax cummin
        div:trunc_rounding div:floor_rounding fmax fmin fmod remainder floor_divide ge gt
        kthvalue le logical_not lt lu_unpack masked_fill masked_scatter masked_select
        max:reduction_no_dim median nanmedian min:reduction_no_dim max:binary maximum min:binary
        minimum logical_and logical_or logical_xor heaviside lcm gcd
        nn.functional.softmin:with_dtype nn.functional.relu nn.functional.conv1d
        nn.functional.conv2d nn.functional.pad:reflect nn.functional.pad:replicate
        nn.functional.pad:replicate_negative nn.functional.margin_ranking_loss
        nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.max_pool3d
        nn.functional.bilinear nn.functional.softsign nn.functional.threshold
        nn.functional.triplet_margin_loss nn.functional.triplet_margin_with_distance_loss
        nn.functional.relu6 neg pow sign sgn __radd__ __rmod__ __rpow__ __rsub__ rsub square
        index_fill index_copy index_select index_add index_reduce:mean index_reduce:amin
        index_reduce:amax index_put put take scatter scatter_add bincount bucketize
        take_along_dim trapz trapezoid cumulative_trapezoid trace tril triu tensordot to_sparse
        nn.functional.l1_loss nonzero argwhere amax amin argmax argmin hash_tensor
        nn.functional.hinge_embedding_loss nn.functional.pairwise_distance
        nn.functional.channel_shuffle scatter_reduce:sum scatter_reduce:prod scatter_reduce:mean
        scatter_reduce:amin scatter_reduce:amax linalg.cross linalg.matrix_power
        linalg.multi_dot masked.sum masked.cumsum masked.cumprod masked.amax masked.amin
        masked.argmax masked.argmin bmm:triton_optimized bitwise_left_shift bitwise_right_shift
        gradient unravel_index nn.functional.poisson_nll_loss
    """,
    ("Halves are computed in float32 and rounded once.", "float16 bfloat16"): """
        cdist nn.functional.avg_pool3d nn.functional.multi_margin_loss
        nn.functional.multilabel_margin_loss histogram histogramdd
    """,
    ("PyTorch computes it on GPUs.", "float16"): "nn.functional.rrelu",
    ("PyTorch computes it on GPUs, and counts are the same.", _WHOLE): "histc",
    ("Zero decimals are what a call without them says.", _WHOLE): "round:decimals_0",
    ("Bools are 0 and 1 here.", "bool"): """
        bitwise_left_shift bitwise_right_shift masked.var masked.std nn.functional.poisson_nll_loss
    """,
    ("Drawn numbers are converted to the dtype.", "bool complex64 complex128"): "randint_like",
}
KNOWN: dict[str, set[str]] = {}
for (_reason, _dtypes), _variants in _DIFFERENCES.items():
    for _variant in _variants.split():
        KNOWN.setdefault(_variant, set()).update(_dtypes.split())
