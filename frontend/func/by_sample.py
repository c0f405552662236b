"""torch.nn.utils._per_sample_grad: gradients of parameters for each sample of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.location import at_user_line

from .._tensor import Tensor
from ..nn.module import Module
from .modules import functional_call
from .vmapping import vmap

__all__ = ["call_for_per_sample_grads"]


def call_for_per_sample_grads(
    module: Module,
    *,
    batch_size: int | None = None,
    loss_reduction: str = "sum",
    batch_first: bool = True,
) -> Callable[..., Any]:
    """The module as a function whose backward pass gives each trainable parameter `grad_sample`,
    its gradients by sample, and leaves `grad` alone.

    batch_size: by default the common first (`batch_first`) or second size of the tensors among the
    arguments. Where the loss is a "mean", gradients are scaled to those of each sample's own loss.
    """
    if loss_reduction not in ("sum", "mean"):
        raise RuntimeError(
            f"Expected loss_reduction argument to be sum or mean, got {loss_reduction}"
            f"{at_user_line()}"
        )
    for name, p in module.named_parameters():
        if getattr(p, "grad_sample", None) is not None:
            raise RuntimeError(
                f"{name} has gradients by sample already, and they don't add up: set its "
                f"grad_sample to None{at_user_line()}"
            )
    axis = 0 if batch_first else 1

    def called(*args: Any, **options: Any) -> Any:
        tensors = [x for x in (*args, *options.values()) if isinstance(x, Tensor)]
        sizes = {x.shape[axis] for x in tensors}
        if batch_size is None and len(sizes) != 1:
            raise RuntimeError(
                f"expected all arguments to have the same batch size, got {sorted(sizes)}: give "
                f"batch_size{at_user_line()}"
            )
        count = batch_size if batch_size is not None else sizes.pop()
        scale = count if loss_reduction == "mean" else 1
        copies = {
            name: _copies(p, count, scale)
            for name, p in module.named_parameters()
            if p.requires_grad
        }

        def of_one(copy: dict[str, Any], one: Any, named: dict[str, Any]) -> Any:
            batch = [x.unsqueeze(axis) if isinstance(x, Tensor) else x for x in one]
            of_names = {
                k: x.unsqueeze(axis) if isinstance(x, Tensor) else x for k, x in named.items()
            }
            return functional_call(module, copy, tuple(batch), of_names).squeeze(axis)

        batched = tuple(axis if isinstance(x, Tensor) else None for x in args)
        by_name = {k: axis if isinstance(x, Tensor) else None for k, x in options.items()}
        return vmap(of_one, in_dims=(0, batched, by_name), out_dims=axis)(copies, args, options)

    return called


def _copies(parameter: Any, count: int, scale: int) -> Tensor:
    """A parameter as many times as there are samples. The gradients of the copies become the
    parameter's `grad_sample`."""
    copies: Tensor = parameter.detach().expand(count, *parameter.shape).clone().requires_grad_()

    def keep(gradient: Tensor) -> None:
        parameter.grad_sample = gradient.detach() * scale if scale != 1 else gradient.detach()

    copies.register_hook(keep)
    return copies
