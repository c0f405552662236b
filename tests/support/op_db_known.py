"""Where tilewright differs from PyTorch's operator database: (variant, aspect), by reason.

`tools/op_db.py --known` prints what is missing here, and what is here and right by now.
"""

from __future__ import annotations

_DIFFERENCES = {
    "Low precision: sums and edges round in another order.": """
        addbmm forward
        grid_sampler_2d forward
        grid_sampler_3d forward
        histc forward
        matrix_exp forward
        nn.functional.binary_cross_entropy_with_logits forward
        nn.functional.conv_transpose2d forward
        nn.functional.conv_transpose3d forward
        nn.functional.grid_sample forward
        nn.functional.hinge_embedding_loss forward
        nn.functional.poisson_nll_loss forward
    """,
    "A write of a larger result to one element.": """
        addbmm in place
    """,
    "Whole numbers without elements stay whole numbers.": """
        nn.functional.local_response_norm forward
    """,
    "PyTorch's documentation has no such argument.": """
        nn.functional.avg_pool2d out
        nn.functional.avg_pool3d out
    """,
    "NumPy has no arrays of more than 64 dimensions.": """
        amax errors
        amin errors
        aminmax errors
    """,
    "A view beyond the part of memory that alone requires a gradient.": """
        as_strided:partial_views gradient
    """,
    "PyTorch's gradient ignores the places (2.13).": """
        as_strided_scatter gradient
    """,
    "Sparse gradients by frequency are refused at the call, not in the backward pass.": """
        nn.functional.embedding forward
        nn.functional.embedding_bag forward
    """,
    "PyTorch's documentation has no such function.": """
        nn.functional.alpha_dropout in place
        nn.functional.dropout in place
        nn.functional.dropout2d in place
        nn.functional.dropout3d in place
        nn.functional.feature_alpha_dropout:with_train in place
        nn.functional.feature_alpha_dropout:without_train in place
        nn.functional.hardsigmoid in place
        nn.functional.mish in place
        nn.functional.silu in place
        nn.functional.silu:complex in place
    """,
    "PyTorch's second derivative is NaN where ours is finite.": """
        linalg.norm:subgradients_at_zero second
        masked.logaddexp second
    """,
}
KNOWN: dict[tuple[str, str], str] = {
    (line.split()[0], " ".join(line.split()[1:])): reason
    for reason, lines in _DIFFERENCES.items()
    for line in lines.strip().splitlines()
}
"""(variant, aspect) -> why it differs."""
