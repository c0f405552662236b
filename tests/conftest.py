"""Shared by all test files: an importable tilewright, the optional oracles, fresh processes."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
KERNELS = {ROOT / "tests" / "codegen", ROOT / "tests" / "runtime"}

# Several workers share the cores, and each would start a thread for each core. This must be set
# before NumPy is imported. Native kernels keep their threads, which tests look at.
os.environ.setdefault("TW_NUM_THREADS", str(os.cpu_count() or 1))
if "PYTEST_XDIST_WORKER" in os.environ:
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")

# No test may read or fill the user's caches.
_cache = tempfile.TemporaryDirectory(prefix="tilewright-tests-", ignore_cleanup_errors=True)
_elsewhere = tempfile.TemporaryDirectory(prefix="tilewright-cwd-")
os.environ["XDG_CACHE_HOME"] = _cache.name
os.environ["TRITON_CACHE_DIR"] = os.path.join(_cache.name, "triton")
os.environ["MPLBACKEND"] = "Agg"


def load_script(path: Path) -> ModuleType:
    """Import a file that belongs to no package, such as one of `tools/`."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _without_install() -> None:
    """Import tilewright from the link tree if it isn't installed."""
    if importlib.util.find_spec("tilewright") is None:
        sys.path.insert(0, str(load_script(ROOT / "tools" / "link_tree.py").build(ROOT)))


_without_install()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device", help="where tests make tensors that name no device: cuda, or interpret"
    )
    parser.addoption("--at-once", action="store_true", help="compute calls when they are made")


def pytest_configure(config: pytest.Config) -> None:
    from tilewright.recording import novelty

    # No test depends on what ran before it: the graphs of tests are new all the time.
    novelty.settle(at_once=config.getoption("--at-once"))
    name = config.getoption("--device")
    if name:
        import tilewright

        def read(made: Callable[..., Any]) -> Callable[..., Any]:
            return lambda tensor, *args, **options: made(tensor.cpu(), *args, **options)

        for conversion in ("numpy", "__array__"):  # for tests that don't think of other devices
            made = getattr(tilewright.Tensor, conversion)
            setattr(tilewright.Tensor, conversion, read(made))
        tilewright.set_default_device(name)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    # pytest rewrites asserts. If finalizers run while CPython 3.11 makes a syntax tree for it, that
    # raises "AST constructor recursion depth mismatch".
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()  # the tests live to the end, so collections need not walk over them


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # libraries look for what was never freed when the process ends


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sample long families, and skip tests that need a missing oracle, by marker or by fixture."""
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled and zlib.crc32(item.name.encode()) % sampled.args[0]:
            item.add_marker("slow")
    missing = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu:
        from tilewright.runtime.cuda import driver

        reason = driver.reason_against()
        for item in on_gpu if reason else ():
            item.add_marker(pytest.mark.skip(reason=reason))
    for item in items:
        if "torch" in getattr(item, "fixturenames", ()):
            item.add_marker("torch")
        for name in missing:
            if item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=f"{name} is not installed"))


@pytest.fixture(autouse=True)
def no_precedents() -> None:
    """No test depends on how the graphs of another one were fused."""
    precedents = sys.modules.get("tilewright.codegen.fusion.precedents")
    if precedents is not None:
        precedents.clear()


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    """PyTorch, the oracle. Tests that use it are skipped where it isn't installed."""
    return pytest.importorskip("torch")


RunPython = Callable[..., str]


@pytest.fixture(scope="session")
def run_python() -> RunPython:
    """Run code in a fresh interpreter, where warnings are errors too. Returns its stdout.

    `run_python(code, *argv, env=None, cwd=None)`. A failing child fails the test with its stderr.
    """
    spec = importlib.util.find_spec("tilewright")
    assert spec is not None and spec.origin is not None
    inherited: dict[str, str] = {}
    tree = Path(spec.origin).parents[1]
    if tree == ROOT / ".src":
        inherited["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(tree), os.environ.get("PYTHONPATH")])
        )

    def run(
        code: str, *argv: str, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> str:
        child = subprocess.run(
            [sys.executable, "-W", "error", "-c", code, *argv],
            env={**os.environ, **inherited, **(env or {})},
            # Not the checkout, where `import ir` would succeed. Nor the cache, where the folder
            # `tilewright` would be imported as the package.
            cwd=cwd or _elsewhere.name,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if child.returncode:
            pytest.fail(f"the child process failed:\n{child.stderr}{child.stdout}", pytrace=False)
        return child.stdout

    return run


@pytest.fixture
def fused() -> Iterator[None]:
    """Compile each graph when it is first met, in child processes, too."""
    from tilewright.runtime import tiers

    before = os.environ.get("TW_TIER")
    os.environ["TW_TIER"] = before or "fused"
    with tiers.fused():
        yield
    if before is None:
        del os.environ["TW_TIER"]


@functools.cache
def _is_of_kernels(path: Path) -> bool:
    return not KERNELS.isdisjoint(path.parents)


@pytest.fixture(autouse=True)
def _tier(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests of kernels compile each graph when it is first met. The others take the tier that users
    have. `torch.compile` makes a process compile sooner, which ends with the test."""
    from tilewright.runtime import tiers

    often = tiers.OFTEN
    if _is_of_kernels(request.path):
        request.getfixturevalue("fused")
    yield
    tiers.OFTEN = often


@pytest.fixture(autouse=True)
def _library_threads() -> Iterator[None]:
    """A test that sets the number of threads sets that of NumPy's library too, which the products'
    bits depend on. Child processes have the number that their worker began with."""
    yield
    if "PYTEST_XDIST_WORKER" in os.environ:
        from tilewright.ir.numeric import blas

        blas.set_threads(int(os.environ["OPENBLAS_NUM_THREADS"]))


@pytest.fixture
def fresh_tables() -> Iterator[None]:
    """Clear the tables and the epoch of recording, so that counts are reproducible."""
    from tilewright import recording

    recording.flush()
    recording.clear_tables()
    yield
    with contextlib.suppress(Exception):
        recording.flush()


@pytest.fixture
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The path of a separate tuner's database for a test. The file doesn't exist yet."""
    from tilewright.runtime.results import choices
    from tilewright.runtime.tuner import engines

    path = tmp_path / "tuning.sqlite"
    monkeypatch.setenv("TW_TUNE_DB", str(path))
    monkeypatch.delenv("TW_TUNE_FILE", raising=False)
    choices.forget()
    engines.of_users.cache_clear()
    yield path
    choices.forget()
    engines.of_users.cache_clear()
