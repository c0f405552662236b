"""TW_DEBUG: the compiler's reports on its work.

TW_DEBUG=1 prints a line for each plan and verifies graphs between passes, TW_DEBUG=2 also prints
the source of each kernel.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .plan import Plan


def level() -> int:
    """The value of TW_DEBUG, 0 if unset."""
    text = os.environ.get("TW_DEBUG", "")
    return int(text) if text.isdigit() else int(bool(text))


def say(sentence: str) -> None:
    """Print a sentence on the work, if TW_DEBUG is set."""
    if level():
        print(f"tilewright: {sentence}", file=sys.stderr)


def compiled(plan: Plan) -> None:
    """Report a new plan."""
    verbosity = level()
    if not verbosity:
        return
    from tilewright.codegen.program import launched

    devices = ", ".join(dict.fromkeys(s.device.name for s in plan.segments)) or "no device"
    print(
        f"tilewright: compiled {len(plan.recorded)} results to {plan.launches} launches on "
        f"{devices} in {plan.compile_seconds * 1e3:.1f} ms",
        file=sys.stderr,
    )
    for segment in plan.segments:
        for kernel in launched(segment.program) if verbosity > 1 else ():
            print(segment.source(kernel), file=sys.stderr)
