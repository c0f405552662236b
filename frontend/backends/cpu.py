"""torch.backends.cpu: the instructions that kernels on the CPU use."""

from __future__ import annotations


def instructions() -> frozenset[str]:
    """The names of the processor's abilities, as Linux lists them; none on other systems."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            return frozenset(next((line for line in file if line.startswith("flags")), "").split())
    except OSError:
        return frozenset()


def get_cpu_capability() -> str:
    """ "AVX512", "AVX2" or "DEFAULT", by what the machine says it has."""
    flags = instructions()
    return "AVX512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "DEFAULT"
