"""torch._dynamo.eval_frame."""

from ..nn.optimized import OptimizedModule


def is_dynamo_supported() -> bool:
    """Whether `torch.compile` works: it does."""
    return True


__all__ = ["OptimizedModule", "is_dynamo_supported"]
