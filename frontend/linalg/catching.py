"""Whether a program is prepared for the error of a call: then it is raised at the call, and not
when the value is computed."""

from __future__ import annotations

import functools
import sys
from types import CodeType
from typing import Any

from tilewright.ir.location import user_frame
from tilewright.runtime import devices

from .. import recording

CALLERS = 2
"""The innermost functions of the program in which a `try` is looked for: such as `safe_inverse`, or
that which calls it. One further out, around a whole training, meets the error as it comes."""


def caught(result: Any) -> Any:
    """The result of a call that can fail. Its error is raised here if a `try` waits for it."""
    if _is_expected():
        settle()
    return result


def settle() -> None:
    """Compute what is recorded, and raise its errors: a GPU is waited for."""
    recording.end_step()
    for name in devices.started():
        devices.get(name).settle()


def _is_expected() -> bool:
    frame = user_frame(sys._getframe(1))
    for _ in range(CALLERS):
        if frame is None:
            return False
        if any(frame.f_lasti in tried for tried in _tried(frame.f_code)):
            return True
        frame = user_frame(frame.f_back)
    return False


@functools.lru_cache(1024)
def _tried(code: CodeType) -> tuple[range, ...]:
    """The instructions of `code` that stand in a `try`. A `with` only looks like one."""
    if sys.version_info < (3, 11):  # no table tells
        return (range(len(code.co_code)),)
    if not code.co_exceptiontable:
        return ()
    import dis

    handles, leaves = dis.opmap["PUSH_EXC_INFO"], dis.opmap["WITH_EXCEPT_START"]
    found = []
    for entry in dis.Bytecode(code).exception_entries:  # type: ignore[attr-defined]
        handler = code.co_code[entry.target : entry.target + 4 : 2]
        if handler[0] == handles and handler[1] != leaves:
            found.append(range(entry.start, entry.end))
    return tuple(found)
