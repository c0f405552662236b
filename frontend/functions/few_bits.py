"""Types of fewer bits than a byte. They are names: no tensor has them, in PyTorch neither."""

from __future__ import annotations

__all__: list[str] = []


class FewBits:
    """The type of elements of 1 to 7 bits, or of bits that stand for no numbers."""

    is_floating_point = is_complex = False

    def __init__(self, name: str, itemsize: int = 1):
        self.name, self.itemsize = name, itemsize

    @property
    def is_signed(self) -> bool:
        if "bits" in self.name:
            raise RuntimeError("Bits types are undefined")
        return self.name.startswith("int")

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


uint1, uint2, uint3, uint4, uint5, uint6, uint7 = (FewBits(f"uint{n}") for n in range(1, 8))
int1, int2, int3, int4, int5, int6, int7 = (FewBits(f"int{n}") for n in range(1, 8))
bits1x8, bits2x4, bits4x2, bits8 = map(FewBits, ("bits1x8", "bits2x4", "bits4x2", "bits8"))
bits16 = FewBits("bits16", 2)
bit = uint1
