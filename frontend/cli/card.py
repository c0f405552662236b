"""The numbers of a card, which its schedules go by: printed where it is, and read elsewhere."""

from __future__ import annotations

from tilewright.codegen.chip import Chip
from tilewright.codegen.target import Target, card, gpu


def numbers(chip: Chip) -> str:
    """Multiprocessors, GB/s of memory and MB of cache, as `target_of` reads them."""
    return f"{chip.multiprocessors},{chip.bandwidth / 1e9:.10g},{chip.cache / 1e6:.10g}"


def target_of(architecture: str, said: str) -> Target:
    """The target of a card of an architecture; the architecture's own without numbers."""
    if not said:
        return gpu(architecture)
    try:
        multiprocessors, bandwidth, cache = (float(each) for each in said.split(","))
    except ValueError:
        raise ValueError(
            "expected a card's multiprocessors, GB/s of its memory and MB of its cache, such as "
            f"132,3352.32,52.4288, got {said!r}"
        ) from None
    return card(architecture, int(multiprocessors), bandwidth * 1e9, round(cache * 1e6))
