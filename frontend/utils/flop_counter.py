"""torch.utils.flop_counter: refused. `tilewright explain` tells what a step costs."""

from __future__ import annotations

from typing import Any

from tilewright.ir.location import at_user_line

__all__ = ["FlopCounterMode"]


class FlopCounterMode:
    """PyTorch counts the operations of calls as they run; here they run later, fused."""

    def __init__(self, *args: Any, **options: Any):
        raise NotImplementedError(
            "torch.utils.flop_counter.FlopCounterMode: calls are recorded and run fused. "
            f"tilewright.explain(step) tells what they cost{at_user_line()}"
        )
