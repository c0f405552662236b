"""torch._dynamo.eval_frame."""

from ..nn.optimized import OptimizedModule

__all__ = ["OptimizedModule"]
