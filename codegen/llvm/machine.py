"""The machine that code is generated for."""

from __future__ import annotations

from dataclasses import dataclass

WEIGHTS = """!0 = !{!"branch_weights", i32 1, i32 100000}
!1 = !{!"branch_weights", i32 1000, i32 1}
"""


@dataclass(frozen=True)
class Machine:
    """triple, cpu and features as LLVM names them; vector_bytes: how wide its registers are."""

    triple: str
    cpu: str
    features: str
    vector_bytes: int

    @property
    def attributes(self) -> str:
        """The attribute group of every function, and how likely branches are, with which each
        module ends; the rest comes from the target machine."""
        return (
            'attributes #0 = { nounwind "no-trapping-math"="true" '
            f'"prefer-vector-width"="{self.vector_bytes * 8}" }}\n{WEIGHTS}'
        )


class CannotLower(Exception):
    """The emitter has no code for a kernel; another one has to take it. The message says why."""
