"""Machines that native code is compiled for elsewhere, and their vector instructions."""

from __future__ import annotations

from tilewright.codegen.llvm import Machine

MACHINES = {
    "avx2": (Machine("x86_64-unknown-linux-gnu", "haswell", "", 32), r"\bvfmadd\w+ps\b.*%ymm"),
    "avx512": (
        Machine("x86_64-unknown-linux-gnu", "skylake-avx512", "", 64),
        r"\bvfmadd\w+ps\b.*%zmm",
    ),
    "neon": (Machine("aarch64-unknown-linux-gnu", "neoverse-n1", "", 16), r"\bfmla\s+v\d+\.4s"),
}
