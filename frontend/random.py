"""torch.random: the generators of random numbers. `functions/sampling.py` draws from them."""

from __future__ import annotations

from .functions.generator import (
    Generator,
    default_generator,
    fork_rng,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)

__all__ = [
    "thread_safe_generator",
    "Generator",
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]


def thread_safe_generator() -> None:
    """None: workers of a DataLoader are processes, each with a default generator of its own."""
