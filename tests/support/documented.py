"""The examples in the docstrings of PyTorch, run in PyTorch and in tilewright.

    python tests/support/documented.py collect EXAMPLES
    python tests/support/documented.py run torch SEEDS EXAMPLES RESULTS
    python tests/support/documented.py run tilewright SEEDS EXAMPLES RESULTS
    python tests/support/documented.py compare EXAMPLES RESULTS…
    python tests/support/documented.py page EXAMPLES

PyTorch runs with two seeds: values that depend on the seed are not compared, only their shapes and
dtypes. `differences` says which examples give something else; `documented_known.py` has the reason
for each. The examples run in the current folder, and some write files.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import io
import json
import math
import os
import pkgutil
import re
import signal
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Examples = dict[str, list[str]]
Outcome = list[Any]  # ["ok", shown values, printed text], ["err", class, message] or ["syntax"]
SECONDS = 20  # that one example may take
SHOWN = 4096  # elements of tensors that are compared

_LEFT_OUT = (
    "torch._C._distributed",
    "torch._export",
    "torch._inductor",
    "torch.backends.",
    "torch.distributed",  # its examples need other processes
    "torch.onnx._internal",
    "torch.testing._internal",
    "torch.utils.benchmark.examples",
    "torch.utils.tensorboard",
)


# ---- the examples of the installed PyTorch


def collect() -> Examples:
    """The examples of each docstring, by the first public name that has it."""
    import torch

    modules: dict[str, Any] = {"torch": torch, "torch.Tensor": torch.Tensor}
    for found in pkgutil.walk_packages(torch.__path__, "torch.", onerror=lambda name: None):
        name = found.name
        private = any(part.startswith("_") for part in name.split(".")[1:])
        if private or name.startswith(_LEFT_OUT):
            continue
        with contextlib.suppress(BaseException):  # some need packages, devices or programs
            modules[name] = importlib.import_module(name)
    examples: Examples = {}
    seen: set[str] = set()
    for name, value in _documented(modules):
        doc = value.__doc__ if isinstance(value, type) else inspect.getdoc(value)
        if isinstance(doc, str) and doc not in seen:
            seen.add(doc)
            if sources := sources_of(value):
                examples[name] = sources
    return dict(sorted(examples.items()))


def _documented(modules: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for home, module in modules.items():
        for name, value in list(vars(module).items()):
            own = getattr(value, "__module__", None) or "torch"
            if name.startswith("_") or isinstance(value, types.ModuleType):
                continue
            if not str(own).startswith("torch"):
                continue
            yield f"{home}.{name}", value
            for inner, part in list(vars(value).items()) if isinstance(value, type) else ():
                if inner == "__init__" or not inner.startswith("_"):
                    with contextlib.suppress(Exception):
                        is_property = isinstance(part, property)
                        shown = part if is_property else getattr(value, inner, part)
                        yield f"{home}.{name}.{inner}", shown


def sources_of(value: Any) -> list[str]:
    """The examples in the docstring of a function or class."""
    doc = value.__doc__ if isinstance(value, type) else inspect.getdoc(value)
    if not isinstance(doc, str) or ">>>" not in doc:
        return []
    doc = inspect.cleandoc(doc)
    try:
        return [each.source for each in doctest.DocTestParser().get_examples(doc)]
    except ValueError:  # indented unevenly: read the prompts alone
        found: list[str] = []
        open_ = False
        for line in map(str.strip, doc.splitlines()):
            if line.startswith(">>>"):
                found.append("")
            if line.startswith(">>>") or (open_ and line.startswith("...")):
                found[-1] += line[3:].removeprefix(" ") + "\n"
            open_ = line.startswith((">>>", "..."))
        return found


# ---- running them


class TimeOut(Exception):
    pass


def _alarm(*_: Any) -> None:
    raise TimeOut("timeout")


def run(which: str, seeds: list[int], examples: Examples) -> list[dict[str, list[Outcome]]]:
    """What each example gives with each of the seeds. Examples that change PyTorch's settings, or
    register something, need a process for each seed.

    which: "torch", or "tilewright", which then stands in for it.
    """
    if which == "tilewright":
        from tilewright.as_torch.distribution import torch_means_tilewright

        stand_in = torch_means_tilewright()  # it ends when nobody refers to it
        stand_in.__enter__()
    import numpy as np
    import torch

    assert (torch is sys.modules.get("tilewright")) == (which == "tilewright"), "another torch"
    signal.signal(signal.SIGALRM, _alarm)
    warnings.simplefilter("ignore")
    return [_run_once(torch, np, seed, examples) for seed in seeds]


def _run_once(torch: Any, np: Any, seed: int, examples: Examples) -> dict[str, list[Outcome]]:
    results = {}
    for name, sources in examples.items():
        scope = {
            "torch": torch, "nn": torch.nn, "F": torch.nn.functional, "np": np, "numpy": np,
            "math": math, "__name__": "__main__",
        }  # fmt: skip
        torch.manual_seed(seed)
        np.random.seed(seed)
        results[name] = [_outcome(torch, source, scope) for source in sources]
        with contextlib.suppress(Exception):
            torch.set_default_dtype(torch.float32)
            torch.set_grad_enabled(True)
            torch.set_default_device(None)
            torch.use_deterministic_algorithms(False)
            torch.set_printoptions(profile="default")
    return results


def _outcome(torch: Any, source: str, scope: dict[str, Any]) -> Outcome:
    shown: list[Any] = []

    def hook(value: Any) -> None:
        if value is not None:
            shown.append(_show(torch, value))

    before, sys.displayhook = sys.displayhook, hook
    printed = io.StringIO()
    try:
        signal.alarm(SECONDS)
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            exec(compile(source, "<example>", "single"), scope)
        signal.alarm(0)
        return ["ok", shown, _plain(printed.getvalue())[:2000]]
    except SyntaxError:
        return ["syntax"]
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return ["err", type(error).__name__, str(error)[:300]]
    finally:
        signal.alarm(0)
        sys.displayhook = before


def _plain(text: str) -> str:
    """A text without addresses, and without the places in the user's file that our errors name."""
    return re.sub(r"0x[0-9a-f]+", "0x", re.sub(r", at [\w<>.]+:\d+", "", text))


def _show(torch: Any, value: Any, depth: int = 0) -> list[Any]:
    """A value as JSON: its kind, and what is compared."""
    if isinstance(value, torch.Tensor):
        try:
            text = repr(value)
        except Exception as error:
            text = f"repr raises {type(error).__name__}"
        head = [str(value.dtype), list(value.shape), bool(value.requires_grad)]
        return ["tensor", head, _numbers(torch, value), text[:400]]
    if isinstance(value, (list, tuple)) and depth < 3:
        return ["list", type(value).__name__, [_show(torch, v, depth + 1) for v in value[:50]]]
    if isinstance(value, dict) and depth < 3:
        items = [[str(k), _show(torch, v, depth + 1)] for k, v in list(value.items())[:50]]
        return ["dict", type(value).__name__, items]
    if isinstance(value, (set, frozenset)):
        return ["set", type(value).__name__, sorted(map(str, value))]
    if value is None or isinstance(value, (bool, str)):
        return ["value", value[:600] if isinstance(value, str) else value]
    if isinstance(value, (int, float)):
        return ["number", value]
    return ["object", type(value).__name__, _plain(repr(value))[:1500]]


def _numbers(torch: Any, value: Any) -> Any:
    plain = value.layout == torch.strided and not value.is_quantized
    if not plain or value.device.type == "meta" or value.numel() > SHOWN:
        return None
    try:
        x = value.detach()
        if x.is_complex():
            x = torch.view_as_real(x.resolve_conj()).to(torch.float64)
        return x.reshape(-1).tolist()
    except Exception as error:
        return f"tolist raises {type(error).__name__}"


# ---- comparing


Difference = tuple[str, int, str]  # (docstring, number of the example, what differs)


def differences(
    examples: Examples,
    first: dict[str, list[Outcome]],
    second: dict[str, list[Outcome]],
    ours: dict[str, list[Outcome]],
) -> list[Difference]:
    """The examples that give something else in tilewright.

    An example that only misses a name which an earlier one of its docstring failed to define isn't
    counted again. One that takes PyTorch too long ends its docstring.
    """
    found: list[Difference] = []
    for name in examples:
        failed = False
        for i, (a, b, o) in enumerate(zip(first[name], second[name], ours[name], strict=True)):
            if ["err", TimeOut.__name__] in (a[:2], b[:2]):  # nor is what follows comparable
                break
            follows = failed and o[0] == "err" and o[1] == "NameError"
            text = None if follows else _difference(name, a, b, o)
            failed = failed or (text is not None) or (a[0] == o[0] == "err")
            if text is not None:
                found.append((name, i, text))
    return found


UNSET = set(
    """torch.empty torch.empty_like torch.empty_permuted torch.empty_strided
    torch.ByteTensor.new_empty torch.ByteTensor.new_empty_strided torch.nn.utils.skip_init
    torch.nn.utils.init.skip_init""".split()
)
"""Docstrings of what shows memory as it is found."""
ROUNDED = {"torch.linalg.qr", "torch.qr"}
"""Docstrings that round errors to zero: its sign is another one on another processor."""
_NO_DEVICE = re.compile(
    r"not compiled with CUDA|not linked with support|MPS is not available|'MPS' backend"
    r"|_cuda_setDevice|without ATen_cuda library"
)
"""What PyTorch's build for CPUs says of devices that it doesn't have."""


def _difference(name: str, a: Outcome, b: Outcome, o: Outcome) -> str | None:
    """What differs between an example's outcomes: PyTorch's with two seeds, and ours."""
    if a[0] == "syntax" or o[0] == "syntax":
        return None if a[0] == o[0] else f"{a[:2]}, ours {o[:2]}"
    if a[0] == "err":
        if o[0] != "err":
            return f"raises {a[1]}: {a[2]}, and ours doesn't"
        same = a[1] == o[1] or _NO_DEVICE.search(a[2])
        return None if same else f"{a[1]}: {a[2]}, ours {o[1]}: {o[2]}"
    if o[0] == "err":
        return f"ours raises {o[1]}: {o[2]}"
    if len(a[1]) != len(o[1]):
        return f"{len(a[1])} values, ours {len(o[1])}"
    fixed = a == b and name not in UNSET
    for theirs, mine in zip(a[1], o[1], strict=True):
        if name in ROUNDED and theirs[0] == mine[0] == "tensor":
            theirs, mine = ([*each[:3], _unsigned(each[3]), *each[4:]] for each in (theirs, mine))
        if text := _unlike(theirs, mine, fixed):
            return text
    if fixed and a[2] != o[2]:
        return f"prints {a[2]!r}, ours {o[2]!r}"
    return None


def _unsigned(text: str) -> str:
    """The text of a tensor without the signs of its zeros."""
    return re.sub(r"-0\.(?!\d)", "0.", text)


def _unlike(a: Any, b: Any, fixed: bool) -> str | None:
    """What differs between two shown values. fixed: whether their numbers are to be the same."""
    kind = a[0]
    if kind != b[0]:
        if kind == "object" and b[0] == "object":
            return None
        return f"{a[:2]}, ours {b[:2]}"
    if kind == "tensor":
        if a[1] != b[1]:
            return f"{a[1]}, ours {b[1]}"
        if not fixed:
            return None
        if not _close(a[2], b[2]):
            return f"{str(a[2])[:90]}, ours {str(b[2])[:90]}"
        exact = a[2] == b[2]
        same = a[3] == b[3] if exact else _form(a[3]) == _form(b[3])
        return None if same else f"{a[3]}, ours {b[3]}"
    if kind in ("list", "dict"):
        if a[1] != b[1] or len(a[2]) != len(b[2]):
            return f"{a[1]} of {len(a[2])}, ours {b[1]} of {len(b[2])}"
        for x, y in zip(a[2], b[2], strict=True):
            if kind == "dict" and x[0] != y[0]:
                return f"key {x[0]}, ours {y[0]}"
            if text := _unlike(*((x[1], y[1]) if kind == "dict" else (x, y)), fixed):
                return text
        return None
    if not fixed:
        return None
    if kind == "number":
        return None if _close(a[1], b[1]) else f"{a[1]}, ours {b[1]}"
    if kind == "object":
        return None if _alike(a, b) else f"{a[1:]}, ours {b[1:]}"
    return None if a == b else f"{a[1:]}, ours {b[1:]}"


_CALLED = {"builtin_function_or_method", "function", "method_descriptor"}


def _alike(a: list[Any], b: list[Any]) -> bool:
    """Whether two objects are of one kind, and look the same if they look like anything."""
    if a[1] in _CALLED:
        return b[1] in _CALLED
    looks_like_nothing = " object at 0x" in a[2]
    if a[1].startswith("_"):  # a private class
        return looks_like_nothing
    return a[1] == b[1] and (looks_like_nothing or a[2] == b[2])


def _form(text: str) -> str:
    """A text without its numbers and spaces, which rounding changes."""
    return re.sub(r"-?\d[\d.]*(e[+-]?\d+)?|\s+", "", text)


def _close(x: Any, y: Any) -> bool:
    if isinstance(x, list) and isinstance(y, list):
        return len(x) == len(y) and all(map(_close, x, y))
    if not isinstance(x, (int, float)) or not isinstance(y, (int, float)):
        return bool(x == y)
    if isinstance(x, bool) or isinstance(y, bool) or math.isinf(x) or math.isinf(y):
        return x == y
    return (x != x and y != y) or abs(x - y) <= 1e-4 + 1e-3 * abs(x)


# ---- the page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "documented_examples.md"
_PAGE = """# The examples of PyTorch's documentation

The docstrings of PyTorch 2.13 have {count:,} examples, in {places:,} docstrings. All of them run in
PyTorch and in tilewright, on a CPU: results, shapes, dtypes, classes of errors and printed text are
compared, and values where PyTorch's own don't depend on the seed. {differ} examples give something
else; where PyTorch refuses a device that it wasn't built for, tilewright may say it in other words.

`tests/frontend/test_documented_examples.py` runs them; `tests/support/documented_known.py` has the
reasons, from which `python tests/support/documented.py page EXAMPLES` writes this page.

{table}
"""


def table() -> str:
    """The reasons and their examples, as a table of Markdown."""
    from documented_known import KNOWN

    rows: dict[str, dict[str, list[int]]] = {}
    for (name, number), reason in KNOWN.items():
        rows.setdefault(reason, {}).setdefault(name, []).append(number)
    lines = ["| why | docstring: numbers of its examples, from 0 |", "|---|---|"]
    for reason, places in rows.items():
        said = (f"`{name}`: {', '.join(map(str, numbers))}" for name, numbers in places.items())
        lines.append(f"| {reason} | {'; '.join(said)} |")
    return "\n".join(lines)


def write_page(examples: Examples) -> None:
    from documented_known import KNOWN

    count = sum(map(len, examples.values()))
    text = _PAGE.format(count=count, places=len(examples), differ=len(KNOWN), table=table())
    PAGE.write_text(text, encoding="utf-8")


# ---- the program


def main(command: str, *args: str) -> None:
    if command == "collect":
        Path(args[0]).write_text(json.dumps(collect()), encoding="utf-8")
    elif command == "run":
        which, seeds, examples, results = args
        found = run(which, list(map(int, seeds.split(","))), _read(examples))
        Path(results).write_text(json.dumps(found), encoding="utf-8")
    elif command == "page":
        write_page(_read(args[0]))
    else:
        examples_, *files = map(_read, args)
        outcomes = [each for file in files for each in file]
        for name, i, text in differences(examples_, *outcomes):
            print(f"{name} {i}: {examples_[name][i].strip()[:120]}\n    {text[:500]}")


def _read(path: str) -> Any:
    return json.loads(Path(path).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # examples left threads and processes behind
