"""The baseline tier: graphs that were not met before, computed op by op on the host.

Nothing is fused and nothing is compiled for a graph. An op runs with a ready function that takes
any size: NumPy's, or a native kernel where NumPy's result has other bits than the compiled one.
"""

from collections.abc import Iterator


def all_code() -> Iterator[tuple[str, str]]:
    """(name, LLVM IR) of every piece of code that isn't the kernel of a single op, for the pack."""
    from . import chains, convolutions, depthwise, indexed, rows, scans

    yield from chains.all_code()
    yield from convolutions.all_code()
    yield from depthwise.all_code()
    yield from indexed.all_code()
    yield from rows.all_code()
    yield from scans.all_code()
