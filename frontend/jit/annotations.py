"""torch.jit.annotations: types that scripted functions are annotated with."""

from __future__ import annotations

import builtins
from typing import Any, Dict, List, Optional, Tuple, Union, get_args, get_origin  # noqa: UP035

__all__ = ["BroadcastingList1", "BroadcastingList2", "BroadcastingList3"]


class _Broadcasting:
    """A list that may be given as one value: BroadcastingList2[int]."""

    def __getitem__(self, kind: Any) -> Any:
        return Union[kind, List[kind]]  # noqa: UP007


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = _Broadcasting()
Dict, List, Optional, Tuple = Dict, List, Optional, Tuple  # noqa: UP006


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a class, of one of several, or of a type of containers."""
    if builtins.isinstance(kind, tuple):
        return any(fits(value, each) for each in kind)
    origin, args = get_origin(kind), get_args(kind)
    if origin is None:
        return kind is Any or builtins.isinstance(value, kind)
    if origin is Union:
        return any(fits(value, type(None) if each is None else each) for each in args)
    if not builtins.isinstance(value, origin):
        return False
    if origin is dict:
        return all(fits(k, args[0]) and fits(v, args[1]) for k, v in value.items())
    if origin is tuple:
        return len(value) == len(args) and all(map(fits, value, args))
    return all(fits(each, args[0]) for each in value)
