"""What `runtime/cuda/solver.py` knows of cuSOLVER and cuBLAS, against their wheels' headers."""

from __future__ import annotations

import ctypes
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tilewright.runtime.cuda import solver

_spec = find_spec("nvidia")
FOLDERS = list(_spec.submodule_search_locations or ()) if _spec is not None else []
HEADERS = [
    header
    for folder in FOLDERS
    for name in ("cusolverDn.h", "cusolver_common.h", "cublas_api.h")
    for header in sorted(Path(folder).glob(f"*/include/{name}"))
]

pytestmark = pytest.mark.skipif(len(HEADERS) < 3, reason="no wheels of cuSOLVER and cuBLAS")

NUMBERS = {
    "CUBLAS_FILL_MODE_LOWER": solver._LOWER,
    "CUBLAS_FILL_MODE_UPPER": solver._UPPER,
    "CUBLAS_SIDE_RIGHT": solver._RIGHT,
    "CUBLAS_OP_N": solver._PLAIN,
    "CUBLAS_DIAG_UNIT": 1,
    "CUSOLVER_EIG_MODE_VECTOR": 1,
} | {
    f"{library.upper()}_STATUS_{name}": number
    for library, faults in solver._FAULTS.items()
    for number, name in faults.items()
}


@pytest.fixture(scope="module")
def text() -> str:
    return "\n".join(header.read_text(errors="replace") for header in HEADERS)


def size(parameter: str) -> int:
    if "*" in parameter or re.search(r"Handle_t|Params_t|Stream_t|Info_t", parameter):
        return ctypes.sizeof(ctypes.c_void_p)
    if re.search(r"\b(int64_t|size_t)\b", parameter):
        return 8
    return 1 if "char" in parameter else 4  # integers and enumerations


@pytest.mark.parametrize("name", solver.PROTOTYPES)
def test_parameters(text: str, name: str) -> None:
    declared = re.search(rf"\b{name}\(([^)]*)\)", text)
    assert declared is not None, "the header has no such function"
    expected = [size(p) for p in declared[1].split(",")]
    assert [ctypes.sizeof(t) for t in solver.PROTOTYPES[name]] == expected


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(text: str, name: str) -> None:
    assert re.search(rf"\b{name}\s*=\s*{NUMBERS[name]}\b", text)
