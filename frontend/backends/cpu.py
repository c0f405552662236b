"""torch.backends.cpu: the instructions that kernels on the CPU use."""

from __future__ import annotations


def get_cpu_capability() -> str:
    """ "AVX512", "AVX2" or "DEFAULT", by what the machine says it has."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            flags = next((line for line in file if line.startswith("flags")), "").split()
    except OSError:
        return "DEFAULT"
    return "AVX512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "DEFAULT"
