"""torch.utils.flop_counter: refused. `tilewright explain` tells what a step costs."""

from __future__ import annotations

from typing import Any, NoReturn

from tilewright.ir.location import at_user_line

__all__ = ["FlopCounterMode"]


class FlopCounterMode:
    """A count of operations, which has none: PyTorch counts calls as they run, and here they run
    later, fused. So it can be made, and not entered."""

    def __init__(self, mods: Any = None, depth: int = 2, display: bool = True, **options: Any):
        self.depth, self.display = depth, display

    def __enter__(self) -> NoReturn:
        raise NotImplementedError(
            "torch.utils.flop_counter.FlopCounterMode: calls are recorded and run fused. "
            f"tilewright.explain(step) tells what they cost{at_user_line()}"
        )

    def __exit__(self, *exc: object) -> None:
        pass

    def get_total_flops(self) -> int:
        return 0

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        return {}
