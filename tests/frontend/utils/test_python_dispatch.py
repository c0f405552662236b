"""torch.utils._python_dispatch, which refuses, and the words of files for devices."""

from __future__ import annotations

import types
from typing import Any

import pytest

import tilewright as tw
from tilewright.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode,
    is_traceable_wrapper_subclass,
)


def test_dispatch_modes_say_what_there_is_instead() -> None:
    class Logging(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    mode = Logging()
    with pytest.raises(NotImplementedError, match=r"Logging: .*TorchFunctionMode"), mode:
        pass
    assert _get_current_dispatch_mode() is None
    assert not is_traceable_wrapper_subclass(tw.ones(2))


def test_locations(torch: Any) -> None:
    def run(m: Any) -> list[Any]:
        s, found = m.serialization, []
        found.append(s.location_tag(m.ones(2).untyped_storage()))
        module = types.ModuleType("package")
        check = s.check_module_version_greater_or_equal
        for version in ("1.2.3", "1.3.0", "0.9.9"):
            module.__version__ = version
            found.append(check(module, (1, 2, 3)))
        module.__version__ = "1.x"
        with pytest.raises(RuntimeError, match="malformed"):
            check(module, (1, 2))
        with pytest.warns(UserWarning, match="requirement is met"):
            found.append(check(module, (1, 2), error_if_malformed=False))
        if not m.cuda.is_available():
            with pytest.raises(RuntimeError, match=r"map_location=torch\.device"):
                s.validate_cuda_device("cuda:0")
        return found

    assert run(tw) == run(torch)
