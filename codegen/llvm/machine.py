"""The machine that code is generated for."""

from __future__ import annotations

from dataclasses import dataclass

WEIGHTS = """!0 = !{!"branch_weights", i32 1, i32 100000}
!1 = !{!"branch_weights", i32 1000, i32 1}
"""


@dataclass(frozen=True)
class Machine:
    """triple, cpu and features as LLVM names them. vector_bytes: the width of its registers."""

    triple: str
    cpu: str
    features: str
    vector_bytes: int

    @property
    def multiplies_words(self) -> bool:
        """Whether one instruction adds up the products of neighbouring bytes or int16."""
        return self.triple.startswith("x86_64") and self.vector_bytes >= 32

    @property
    def multiplies_bytes(self) -> bool:
        """Whether it does so for four bytes (VNNI)."""
        wanted = "+avx512vnni" if self.vector_bytes == 64 else "+avxvnni"
        return self.multiplies_words and wanted in self.features.split(",")

    @property
    def multiplies_halves(self) -> bool:
        """Whether it does so for two bfloat16, in float32."""
        wide = self.triple.startswith("x86_64") and self.vector_bytes == 64
        return wide and "+avx512bf16" in self.features.split(",")

    @property
    def multiplies_squares(self) -> bool:
        """Whether it has registers that are matrices, and multiplies bfloat16 and bytes in them
        (AMX)."""
        wanted = {"+amx-tile", "+amx-bf16", "+amx-int8", "+avx512bw"}
        wide = self.triple.startswith("x86_64") and self.vector_bytes == 64
        return wide and wanted <= {*self.features.split(",")}

    @property
    def attributes(self) -> str:
        """The end of each module: the attribute group of every function, and how likely branches
        are. The rest comes from the target machine."""
        return (
            'attributes #0 = { nounwind "no-trapping-math"="true" '
            f'"prefer-vector-width"="{self.vector_bytes * 8}" }}\n{WEIGHTS}'
        )


class CannotLower(Exception):
    """The emitter has no code for a kernel; another emitter takes it. The message says why."""
