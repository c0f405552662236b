"""The 200 problems of KernelBench's levels 1 and 2, written anew: the computation of each, and its
sizes in version 0.1 (Ouyang and others, "KernelBench: Can LLMs Write Efficient GPU
Kernels?", 2025)."""

from . import level1, level2
from .problem import FULL, REDUCED, SMALL, Problem, Scale, Source

LEVELS: dict[int, list[Problem]] = {1: level1.PROBLEMS, 2: level2.PROBLEMS}

__all__ = ["FULL", "LEVELS", "REDUCED", "SMALL", "Problem", "Scale", "Source"]
