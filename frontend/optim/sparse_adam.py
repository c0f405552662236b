"""SparseAdam, for sparse gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from .optimizer import Optimizer, check, check_betas

if TYPE_CHECKING:
    from .._tensor import Tensor
    from .optimizer import ParamsT


class SparseAdam(Optimizer):
    """Adam that moves only the rows that a sparse gradient names.

    Gradients are dense here, and a dense gradient is an error, as in PyTorch: use Adam.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        check("learning rate", lr)
        check("epsilon value", eps)
        check_betas(betas)
        defaults = {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize}
        super().__init__(params, defaults)
        for i, group in enumerate(self.param_groups):
            found = [p for p in group["params"] if p.is_complex()]
            if found:
                raise ValueError(
                    "SparseAdam does not support complex parameters: parameter "
                    f"{[p is found[0] for p in group['params']].index(True)} of group {i}"
                    f"{at_user_line()}"
                )

    def _step_group(self, group: dict[str, Any], params: list[Any]) -> None:
        raise RuntimeError(
            "SparseAdam does not support dense gradients, please consider Adam instead"
            f"{at_user_line()}"
        )
