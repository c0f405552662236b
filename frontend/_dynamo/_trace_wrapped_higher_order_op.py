"""torch._dynamo._trace_wrapped_higher_order_op: a mode that transformers enters for its masks."""

from contextlib import nullcontext

__all__ = ["TransformGetItemToIndex"]


class TransformGetItemToIndex(nullcontext[None]):
    """A block like any other: indices may be tensors without it."""
