"""Write docs/coverage.md: which public names of PyTorch are there, and why the others aren't.

PYTHONPATH=.src python tools/coverage.py        (PyTorch must be installed)

The public names are those that PyTorch's modules list in `__all__`, or define and export without
an underscore, and the public attributes of the classes among them.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "coverage.md"

# Why names are missing: the first pattern that fits the whole name, without `torch.`.
REASONS = {
    r"((distributed|nn\.parallel\.distributed|nn\.parallel\.DistributedDataParallel|numa)\b.*"
    r"|batch_norm_(backward|elemt|gather|stats|update)\w*)": (
        "inner parts of training by several processes"
    ),
    r"utils\.data\.(\w*DataPipe|DataChunk|datapipes|functional_datapipe|graph|graph_settings"
    r"|argument_validation|runtime_validation\w*|guaranteed_datapipes\w*|non_deterministic"
    r"|backward_compatibility)\b.*": "data pipes, which PyTorch itself has given up",
    r"(multiprocessing\.(reductions|pool)\b.*|Event\.(from_)?ipc_handle)": (
        "how PyTorch sends memory between processes"
    ),
    r"optim\.(\w+)\.\1": "functions of optimizers whose states follow from step counts",
    r"(masked\.(maskedtensor|MaskedTensor|\w*masked_tensor)\b.*)": (
        "PyTorch's prototype of masked tensors: the functions of torch.masked take masks"
    ),
    r"(autograd\.(\w+\.)?(NestedIOFunction|BackwardCFunction|InplaceFunction|FunctionMeta"
    r"|FunctionCtx|Function|enforce_grad_layout_policy|get_\w+_jacobian\w*"
    r"|region_activation_memory_budget)\b.*"
    r"|utils\.checkpoint\.(GraphExecGroup|SAC_IGNORED_OPS))": "inside of PyTorch's autograd",
    r"autograd\.(profiler\w*)\b.*": "traces of PyTorch's own events",
    r"(compiler\b.*|Sym(Int|Float|Bool)\..*|sym_(constrain|fresh)\w*|cond|while_loop)": (
        "switches of PyTorch's compiler, and numbers that it doesn't know"
    ),
    r"(library\.(Library\.\w+|get_ctx|get_kernel|register_autocast|register_torch_dispatch"
    r"|register_vmap)|utils\.backend_registration\b.*)": "layers of PyTorch's dispatcher",
    r"(float4\w*|float8_(e4m3fnuz|e5m2fnuz|e8m0fnu))": (
        "dtypes that PyTorch on a CPU converts, and computes nothing with"
    ),
    r"(complex32|(.*\.)?chalf)": "complex numbers of two halves",
    r"(backends\.python_native|backends\.cusparselt|Event|Stream|accelerator\.Graph)\b.*": (
        "libraries and counters of devices"
    ),
    r"\w*autocast_(ipu|xla)\w*": "devices that aren't there",
    r"(import_ir_module\w*|parse_\w+|unify_type_list|merge_type_from_type_comment|AVG|SUM)": (
        "TorchScript's compiler: Python runs scripted programs"
    ),
    r"(fft\.Tensor|.*\b(common|tf32|reproducibility|sparse_support)_notes|.*\bslice_inverse|Tensor\.index"
    r"|(random\.)?thread_safe_generator|.*assert_int_or_pair|utils\.(cmake_prefix_path"
    r"|cpp_backtrace|debug_log|flop_counter)\b.*|optim\.Optimizer\.\w*|version\.rocm"
    r"|nn\.utils\.spectral_norm\.\w+Hook|hsmm|native_norm|choose_qparams_optimized|optim\.swap_in_optimizer_params_and_state|amp\..*(decorator|OptState.*)"
    r"|optim\.\w+\.SequentialLR\.recursive_undo|utils\.hooks\.RemovableHandle\.next_id)": (
        "inner names that PyTorch exports by accident, or for its own parts"
    ),
    r"(_?C\b|classes|ops)\b.*": "PyTorch's compiled part",
    r"(utils\.cpp_extension|utils\.mobile_optimizer|utils\.bundled_inputs)\b.*": (
        "extensions in C++, and phones"
    ),
    r"(ao|quantization|nn\.quantiz\w+|nn\.qat|nn\.intrinsic|backends\.quantized)\b.*": (
        "quantization"
    ),
    r"(.*\b)?(q_\w+|qint\w*|quint\w*|q(u?int)\w+|.*quant\w*|fbgemm\w*|int_repr)(\..*)?": (
        "quantization"
    ),
    r"(utils\.benchmark\b.*|sparse\.as_sparse_gradcheck)": "tools of PyTorch's developers",
    r".*[sS]emi_?[sS]tructured\b.*|.*SparseSemiStructured.*": (
        "products with weights of which two in four are zero: there is no kernel for them"
    ),
    r"sparse\.solve": "systems with sparse matrices, for which PyTorch needs a library of CUDA",
    r"cuda\.sparse\.\w+Tensor": "older names of sparse types on GPUs",
    r"nn\.functional\.scaled_grouped_mm": "products that PyTorch has on GPUs alone",
    r"nested\b.*": "nested tensors",
    r"(cuda|xpu|mtia|mps|backends\.(cuda|mps|miopen|xnnpack|xeon|cudnn|kleidiai))\b.*": (
        "libraries and counters of devices"
    ),
    r"(_inductor|_dynamo|_export|_functorch|_prims\w*|_refs|_decomp|_subclasses|_logging)\b.*": (
        "inside of PyTorch's compiler"
    ),
    r"onnx\b.*": "inside of PyTorch's exporter: `torch.onnx.export` is ours",
    r"(.*\b)?(cudnn|miopen|mkldnn|mkl|xnnpack|fused_moving_avg)\w*(\..*)?": (
        "entry points of libraries"
    ),
    r"jit\b.*": "TorchScript's compiler: Python runs scripted programs",
    r"serialization\b.*": "steps inside of PyTorch's save and load",
    r"profiler\b.*": "traces of PyTorch's own events",
    r"(testing|package|monitor|utils\.viz|utils\.bottleneck|utils\.benchmark)\b.*": (
        "tools of PyTorch's developers"
    ),
    r"export\b.*": "passes of PyTorch's exporter: programs here call public functions",
    r"fx\b.*": "inside of torch.fx's tracer and writer of code",
}
OPEN = "not there yet"

# Modules that PyTorch documents as private, or that need what isn't installed.
_SKIPPED = re.compile(
    r"torch\.(.*\._|_|return_types|testing\._|contrib|(bin|lib)\b|utils\.(hipify|tensorboard|benchmark\.examples)|"
    r"distributed|ao|quantization|onnx|fx\.(experimental|passes)|nn\.(qat|quant|intrinsic)|"
    r"utils\.(viz|bundled|bottleneck|jit|data\.datapipes|model_dump|serialization|collect_env|"
    r"show_pickle|backcompat|throughput_benchmark)|cuda\._|nn\.cpp)"
)

_OF_C = {"Event", "Future", "Generator", "Size", "Stream", "device", "dtype", "layout"}
_TYPED = re.compile(r"[A-Z]\w*(Tensor|Storage)$")  # their attributes are those of Tensor


def public_modules() -> Iterator[Any]:
    """PyTorch's public modules, without those that `_SKIPPED` names."""
    import torch

    yield torch
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for info in pkgutil.walk_packages(torch.__path__, "torch.", onerror=lambda name: None):
            if _SKIPPED.match(info.name):
                continue
            try:
                yield importlib.import_module(info.name)
            except Exception:  # it needs a package or a device that isn't here
                continue


def public_names() -> list[str]:
    """The full names, in alphabetic order; a class brings its public attributes."""
    import torch

    found: set[str] = set()
    classes: dict[Any, str] = {}  # with their shortest names
    for module in public_modules():
        listed = getattr(module, "__all__", None)
        for name in listed if listed is not None else dir(module):
            value = getattr(module, name, None)
            own = str(getattr(value, "__module__", module.__name__) or "")
            if name.startswith("_") or inspect.ismodule(value):
                continue
            if listed is None and own != module.__name__:
                continue
            of_c = inspect.isclass(value) and getattr(torch._C, name, None) is value
            if of_c and name not in _OF_C:
                continue  # torch exports the types of its own compiler
            full = f"{module.__name__}.{name}"
            found.add(full)
            if inspect.isclass(value) and own.startswith("torch") and not _TYPED.match(name):
                classes[value] = min(classes.get(value, full), full, key=len)
    for kind, full in classes.items():
        found |= {f"{full}.{name}" for name in vars(kind) if not name.startswith("_")}
    found |= {f"torch.Tensor.{name}" for name in dir(torch.Tensor) if not name.startswith("_")}
    return sorted(found)


def found_at(parts: list[str]) -> Any:
    """What tilewright has at a path; LookupError if it has nothing there.

    A function may hide the module that is called as itself: its names are looked up in the module.
    """
    for count in range(len(parts), -1, -1):
        try:
            found = importlib.import_module(".".join(["tilewright", *parts[:count]]))
            for part in parts[count:]:
                found = getattr(found, part)
        except (ImportError, AttributeError):
            continue
        return found
    raise LookupError(".".join(parts))


def is_there(name: str) -> bool:
    """Whether tilewright has `name`, which begins with torch: also an attribute that only instances
    of a class have."""
    *home, last = name.split(".")[1:]
    try:
        found_at([*home, last])
    except LookupError:
        try:
            owner = found_at(home)
        except LookupError:
            return False
        if not inspect.isclass(owner):
            return False
        declared = {n for kind in owner.__mro__ for n in vars(kind).get("__annotations__", {})}
        return last in declared or inspect.getattr_static(owner, last, None) is not None
    return True


def reason(name: str) -> str:
    """Why a missing name is missing."""
    short = name.removeprefix("torch.")
    return next((why for form, why in REASONS.items() if re.fullmatch(form, short)), OPEN)


def page() -> str:
    """The text of the page."""
    import torch

    names = public_names()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        missing = [name for name in names if not is_there(name)]
    version = torch.__version__.split("+")[0]
    lines = [
        "# Public names of PyTorch",
        "",
        f"PyTorch {version} has {len(names):,} public names, those of classes included, outside "
        "of the modules for several processes, quantization and the exporter. "
        f"tilewright has {len(names) - len(missing):,} of them. `tools/coverage.py` writes this "
        "page from the installed PyTorch.",
        "",
        "A name that is missing raises an AttributeError or ImportError that says so.",
        "",
    ]
    by_reason: dict[str, list[str]] = {}
    for name in missing:
        by_reason.setdefault(reason(name), []).append(name)
    lines += ["| why | missing names |", "|---|---|"]
    lines += [f"| {why} | {len(by_reason[why])} |" for why in sorted(by_reason)]
    for why in sorted(by_reason):
        lines += ["", f"## {why[0].upper()}{why[1:]}", ""]
        lines += [f"- `{name}`" for name in by_reason[why]]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
