"""Sums and products as modules, which quantization observes: quantizable models have them in the
place of operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .... import add, cat, matmul, mul
from ....nn import Identity, Module
from ....nn.functional import relu

if TYPE_CHECKING:
    from ...._tensor import Tensor

__all__ = ["FloatFunctional", "FXFloatFunctional"]


class FXFloatFunctional(Module):
    """The operations, without an observer."""

    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError(
            "FloatFunctional is not intended to use the forward. Please use the corresponding "
            "operation"
        )

    def _seen(self, x: Tensor) -> Tensor:
        return x

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self._seen(add(x, y))

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        return add(x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        return self._seen(mul(x, y))

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        return mul(x, y)

    def cat(self, x: Sequence[Tensor], dim: int = 0) -> Tensor:
        return self._seen(cat(list(x), dim=dim))

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        return self._seen(relu(add(x, y)))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        return self._seen(matmul(x, y))


class FloatFunctional(FXFloatFunctional):
    """The operations, each behind `activation_post_process`, in whose place quantization puts an
    observer."""

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = Identity()

    def _seen(self, x: Tensor) -> Tensor:
        return self.activation_post_process(x)  # type: ignore[no-any-return]
