"""torch.library: the user's own ops, as Triton kernels or as Python functions.

    @torch.library.triton_op("mylib::add", mutates_args={})
    def add(x, y):
        out = torch.empty_like(x)
        grid = lambda meta: (triton.cdiv(out.numel(), meta["BLOCK"]),)
        torch.library.wrap_triton(add_kernel)[grid](x, y, out, out.numel(), BLOCK=1024)
        return out

A launch is recorded and deferred like any op. It fuses with nothing, and works in plans, CUDA
graphs and ahead-of-time programs. An analysis of the kernel's text finds the arguments that it
writes to.
"""

from .checking import opcheck
from .custom import (
    CustomOpDef,
    custom_op,
    impl_abstract,
    register_autograd,
    register_fake,
    register_kernel,
    register_vmap,
    triton_op,
)
from .launching import wrap_triton
from .libraries import (
    Library,
    _scoped_library,  # noqa: F401
    define,
    fallthrough_kernel,
    get_kernel,
    impl,
    infer_schema,
)

__all__ = [
    "CustomOpDef",
    "Library",
    "custom_op",
    "define",
    "fallthrough_kernel",
    "get_kernel",
    "impl",
    "impl_abstract",
    "infer_schema",
    "opcheck",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_vmap",
    "triton_op",
    "wrap_triton",
]
