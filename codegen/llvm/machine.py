"""The machine that code is generated for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """triple, cpu and features as LLVM names them; vector_bytes: how wide its registers are."""

    triple: str
    cpu: str
    features: str
    vector_bytes: int

    @property
    def attributes(self) -> str:
        """The attribute group of every function; the rest comes from the target machine."""
        return (
            'attributes #0 = { nounwind "no-trapping-math"="true" '
            f'"prefer-vector-width"="{self.vector_bytes * 8}" }}\n'
        )


class CannotLower(Exception):
    """The emitter has no code for a kernel; another one has to take it. The message says why."""
