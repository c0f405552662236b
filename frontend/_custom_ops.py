"""torch._custom_ops: the older path of torch.library's ops."""

from .library import custom_op

__all__ = ["custom_op"]
