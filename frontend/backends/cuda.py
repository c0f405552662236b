"""torch.backends.cuda: how precisely CUDA devices multiply."""

from __future__ import annotations

from .. import precision


class _Matmul:
    """allow_tf32: whether products of float32 may be rounded to TF32, 10 bits of a fraction; the
    same switch as `set_float32_matmul_precision`."""

    @property
    def allow_tf32(self) -> bool:
        return precision.get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        precision.set_float32_matmul_precision("high" if allowed else "highest")


matmul = _Matmul()
