"""Linear algebra on GPUs by cuSOLVER, which computes in the stream of the kernels around it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda, installed

import tilewright as tw
from tilewright.codegen import program
from tilewright.codegen.legalize import factors
from tilewright.ir import ops
from tilewright.ir.ops import host
from tilewright.runtime import devices
from tilewright.runtime.cuda import solver
from tilewright.runtime.device import OutOfMemoryError

fake_solver = pytest.importorskip("fake_solver", reason="SciPy computes in cuSOLVER's place")
pytestmark = pytest.mark.triton
L = tw.linalg


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs have no kernels for small matrices."""
    for module in (host, factors, program):
        monkeypatch.setattr(module, "has_kernel", lambda op, operands: False)


@pytest.fixture
def fake(plain: None) -> Iterator[FakeCuda]:
    """A GPU with the library."""
    with installed(solver=fake_solver.FakeSolver) as made:
        yield made


def drawn(dtype: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    a = rng.standard_normal(shape)
    return (a + 1j * rng.standard_normal(shape) if dtype[0] == "c" else a).astype(dtype)


def definite(m: Any, a: Any) -> Any:
    return a @ a.mH + 3 * m.eye(a.shape[-1], dtype=a.dtype, device=a.device)


def flat(m: Any, *parts: Any) -> Any:
    return m.cat([p.reshape(-1) for p in parts])


def with_values(w: Any, v: Any) -> Any:
    """A function of a symmetric matrix that depends on all of its decomposition."""
    return v @ (w[..., None] ** 2 * v.mH)


def with_singular(u: Any, s: Any, vh: Any) -> Any:
    k = s.shape[-1]
    return u[..., :k] @ (s[..., None] ** 2 * vh[..., :k, :])


def spans(q: Any) -> Any:
    """Which is the identity if the columns are orthonormal."""
    return q.mH @ q


Calls = dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]]

CALLS: Calls = {
    "cholesky": (lambda m, a: m.linalg.cholesky(definite(m, a)), [(2, 5, 5)]),
    "upper cholesky": (lambda m, a: m.linalg.cholesky(definite(m, a), upper=True), [(5, 5)]),
    "solve": (lambda m, a, b: m.linalg.solve(a, b), [(2, 3, 4, 4), (2, 3, 4, 3)]),
    "solve a vector": (lambda m, a, b: m.linalg.solve(a, b), [(2, 4, 4), (2, 4)]),
    "solve from the right": (
        lambda m, a, b: m.linalg.solve(a, b, left=False),
        [(4, 4), (2, 4)],
    ),
    "inverse": (lambda m, a: m.linalg.inv(a), [(2, 4, 4)]),
    "determinant": (lambda m, a: m.linalg.det(a), [(2, 3, 4, 4)]),
    "its logarithm": (lambda m, a: sum(m.linalg.slogdet(a)), [(2, 4, 4)]),
    "lu": (lambda m, a: flat(m, *m.linalg.lu(a)[1:]), [(2, 4, 4)]),
    "lu of wide ones": (lambda m, a: flat(m, *m.linalg.lu(a)[1:]), [(2, 4, 6)]),
    "lu of tall ones": (lambda m, a: flat(m, *m.linalg.lu(a)[1:]), [(6, 4)]),
    "solution by lu": (
        lambda m, a, b: m.linalg.lu_solve(*m.linalg.lu_factor(a), b),
        [(2, 4, 4), (2, 4, 3)],
    ),
    "qr": (lambda m, a: flat(m, *map(abs, m.linalg.qr(a))), [(2, 6, 4)]),
    "qr of wide ones": (lambda m, a: flat(m, *map(abs, m.linalg.qr(a))), [(4, 6)]),
    "qr, complete": (lambda m, a: flat(m, *map(abs, m.linalg.qr(a, "complete"))), [(4, 6)]),
    "eigh": (lambda m, a: with_values(*m.linalg.eigh(definite(m, a))), [(2, 4, 4)]),
    "eigh of the upper triangle": (lambda m, a: with_values(*m.linalg.eigh(a, "U")), [(4, 4)]),
    "eig": (
        lambda m, a: (lambda w, v: v @ (w[..., None] * m.linalg.inv(v)))(*m.linalg.eig(a)),
        [(2, 4, 4)],
    ),
    "svd": (lambda m, a: with_singular(*m.linalg.svd(a, False)), [(2, 6, 4)]),
    "svd of wide ones": (lambda m, a: with_singular(*m.linalg.svd(a, False)), [(4, 6)]),
    "svd of larger ones": (lambda m, a: with_singular(*m.linalg.svd(a, False)), [(2, 33, 3)]),
    "svd, full": (lambda m, a: with_singular(*m.linalg.svd(a)), [(2, 4, 6)]),
    "nuclear norm": (lambda m, a: m.linalg.matrix_norm(a, "nuc"), [(2, 6, 4)]),
    "triangular": (
        lambda m, a, b: m.linalg.solve_triangular(a, b, upper=True),
        [(2, 4, 4), (2, 4, 3)],
    ),
    "unit triangular": (
        lambda m, a, b: m.linalg.solve_triangular(a, b, upper=False, unitriangular=True),
        [(4, 4), (4, 3)],
    ),
    "triangular from the right": (
        lambda m, a, b: m.linalg.solve_triangular(a, b, upper=False, left=False),
        [(2, 4, 4), (2, 3, 4)],
    ),
    "solution by cholesky": (
        lambda m, b, a: m.cholesky_solve(b, m.linalg.cholesky(definite(m, a))),
        [(2, 4, 3), (2, 4, 4)],
    ),
    "inverse by cholesky": (
        lambda m, a: m.cholesky_inverse(m.linalg.cholesky(definite(m, a))),
        [(4, 4)],
    ),
    "pseudo-inverse": (lambda m, a: m.linalg.pinv(a), [(2, 4, 6)]),
    "symmetric pseudo-inverse": (
        lambda m, a: m.linalg.pinv(definite(m, a), hermitian=True),
        [(2, 4, 4)],
    ),
    "numbers": (
        lambda m, a: m.linalg.inv(a) + abs(m.linalg.qr(a)[1]) + m.linalg.matrix_norm(a, 2),
        [(1, 1)],
    ),
}
"""Functions of matrices with their gradients."""

VALUES: Calls = {
    "permutation": (lambda m, a: m.linalg.lu(a)[0], [(2, 6, 4)]),
    "reflectors": (lambda m, a: flat(m, *m.geqrf(a)), [(2, 6, 4)]),
    "their product": (lambda m, a: m.linalg.householder_product(*m.geqrf(a)), [(2, 6, 4)]),
    "complete qr of tall ones": (
        lambda m, a: (lambda q, r: flat(m, spans(q), q @ r))(*m.linalg.qr(a, "complete")),
        [(2, 6, 4)],
    ),
    "full svd": (
        lambda m, a: (lambda u, s, vh: flat(m, spans(u), spans(vh)))(*m.linalg.svd(a)),
        [(2, 6, 4)],
    ),
    "eigenvalues": (lambda m, a: abs(m.linalg.eigvals(a)).sort(-1)[0], [(2, 4, 4)]),
    "eigenvalues of symmetric ones": (lambda m, a: m.linalg.eigvalsh(definite(m, a)), [(3, 4, 4)]),
    "singular values": (lambda m, a: m.linalg.svdvals(a), [(2, 4, 6)]),
    "singular values of larger ones": (lambda m, a: m.linalg.svdvals(a), [(2, 4, 33)]),
    "rank": (lambda m, a: m.linalg.matrix_rank(a), [(2, 4, 6)]),
    "condition": (lambda m, a: m.linalg.cond(a), [(2, 4, 4)]),
    "no matrices": (lambda m, a: m.linalg.inv(a), [(0, 4, 4)]),
    "matrices of nothing": (lambda m, a: m.linalg.svdvals(a), [(2, 0, 4)]),
}
"""Functions of matrices."""


def same(found: Any, expected: Any) -> None:
    a, b = (t.detach().cpu().resolve_conj().numpy() for t in (found, expected))
    assert a.dtype == b.dtype
    bound = 2e4 * np.finfo(b.dtype).eps if b.dtype.kind in "fc" else 0
    np.testing.assert_allclose(a, b, rtol=0, atol=bound * max(1, np.abs(b).max(initial=0)))


DTYPES = ["float32", "float64", "complex64", "complex128"]


def compare(torch: Any, name: str, dtype: str) -> None:
    """A function on the GPU beside PyTorch on the CPU."""
    function, shapes = (CALLS | VALUES)[name]
    results = []
    for m, device in ((tw, "cuda"), (torch, "cpu")):
        given = [m.tensor(drawn(dtype, *s), device=device) for s in shapes]
        for t in given if name in CALLS else ():
            t.requires_grad_()
        y = function(m, *given)
        size = y * y.conj() if y.is_complex() else y * y
        taken = m.autograd.grad(size.real.sum(), given) if name in CALLS else ()
        results.append([y, *taken])
    assert results[0][0].device.type == "cuda"
    for ours, theirs in zip(*results, strict=True):
        same(ours, theirs)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*CALLS, *VALUES])
def test_values_and_gradients(fake: FakeCuda, torch: Any, name: str, dtype: str) -> None:
    compare(torch, name, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*CALLS, *VALUES])
def test_on_a_card(plain: None, torch: Any, name: str, dtype: str) -> None:
    card: Any = devices.get("cuda:0")
    if card.solver is None:
        pytest.skip(f"no cuSOLVER here: {solver._absence}")
    compare(torch, name, dtype)


@pytest.mark.parametrize("name", ["cholesky", "solve", "qr", "eigh", "eig", "svd", "triangular"])
def test_matrices_stay_on_the_gpu(
    fake: FakeCuda, name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Only the result is copied to the host, and whether there is one."""
    monkeypatch.setenv("TW_DEBUG", "1")
    function, shapes = CALLS[name]
    given = [tw.tensor(drawn("float64", *s)).cuda().requires_grad_() for s in shapes]
    tw.autograd.grad(abs(function(tw, *given)).sum(), given)[0].cpu().numpy()
    assert "the host computes" not in capfd.readouterr().err
    assert fake.calls["cuMemcpyDtoHAsync_v2"] <= 2


def test_what_has_no_result(fake: FakeCuda) -> None:
    a = definite(tw, tw.tensor(drawn("float64", 3, 4, 4)).cuda())
    a[1, 2, 2] = -9
    found, info = L.cholesky_ex(a)
    assert info.tolist() == [0, 3, 0]
    assert found.isnan().any(-1).any(-1).tolist() == [False, True, False]
    with pytest.raises(L.LinAlgError, match=r"element 1.*minor of order 3"):
        L.cholesky(a)
    a[2, :, 1] = 0
    for call in (L.inv, lambda a: L.solve(a, a[..., :2])):
        with pytest.raises(L.LinAlgError, match=r"element 2.*singular"):
            call(a).tolist()
    assert L.lu_factor_ex(a)[2].tolist() == [0, 0, 2]
    assert L.det(a).tolist()[2] == 0 and L.slogdet(a)[1].tolist()[2] == -float("inf")


def test_an_error_is_raised_where_a_program_waits_for_it(fake: FakeCuda) -> None:
    """In a `try`, and by `cholesky` always."""
    a = tw.tensor([[1.0, 2.0], [2.0, 4.0]]).cuda()
    try:
        found = L.inv(a)
    except RuntimeError:
        found = L.pinv(a)
    same(found, L.pinv(a.cpu()))


@pytest.mark.parametrize("dtype", [tw.float64, tw.complex128])
def test_what_is_not_finite(fake: FakeCuda, dtype: Any) -> None:
    """It never reaches routines that might not come to an end."""
    a = tw.eye(3, dtype=dtype).repeat(2, 1, 1).cuda()
    a[0, 1, 1] = float("nan")
    calls: dict[str, Callable[[], Any]] = {
        "linalg.svd: ": lambda: L.svd(a)[1],
        "linalg.svd:": lambda: L.svdvals(a),
        "linalg.eig: ": lambda: L.eig(a)[0],
        "linalg.eig:": lambda: L.eigvals(a),
    }
    for text, call in calls.items():
        with pytest.raises(RuntimeError, match=text):
            call().tolist()
    values, vectors = L.eigh(a)
    assert values.isnan().all(-1).tolist() == vectors.isnan().all(-1).all(-1).tolist()
    assert values[1].tolist() == [1, 1, 1]


def test_batches_of_symmetric_matrices_are_one_call(fake: FakeCuda) -> None:
    a = tw.tensor(drawn("float32", 5, 4, 4)).cuda()
    L.eigvalsh(a).tolist()
    L.eigvalsh(a[0]).tolist()
    made = fake.solver.calls
    assert made["cusolverDnXsyevBatched"] == made["cusolverDnXsyevd"] == 1


def test_many_small_matrices_are_the_hosts(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A call for each of them would take longer."""
    monkeypatch.setenv("TW_DEBUG", "1")
    a = tw.tensor(drawn("float64", 100, 3, 3))
    same(L.det(a.cuda()), L.det(a))
    assert "the host computes det of cuda:0" in capfd.readouterr().err
    same(L.det(a[:4].cuda()), L.det(a[:4]))
    for call in (L.svdvals, L.eigvalsh):
        same(call(a.cuda()), call(a))
    assert "the host computes" not in capfd.readouterr().err
    made = fake.solver.calls
    assert made["cusolverDnDgesvdjBatched"] == made["cusolverDnXsyevBatched"] == 1


OLD = ("Xgeev", "XsyevBatched")


def test_an_older_library(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The host computes what it lacks, and says so."""
    monkeypatch.setenv("TW_DEBUG", "1")
    with installed(solver=lambda fake: fake_solver.FakeSolver(fake, OLD)) as fake:
        a = tw.tensor(drawn("float64", 3, 4, 4))
        same(L.eigvalsh(a.cuda()), L.eigvalsh(a))
        assert "the host computes" not in capfd.readouterr().err
        same(abs(L.eigvals(a.cuda())).sort(-1)[0], abs(L.eigvals(a)).sort(-1)[0])
        assert "the host computes eigvals of cuda:0" in capfd.readouterr().err
        assert fake.solver.calls["cusolverDnXsyevd"] == 3


def test_what_no_library_computes(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TW_DEBUG", "1")
    a = tw.tensor(drawn("float64", 4, 4))
    same(L.matrix_exp(a.cuda()), L.matrix_exp(a))
    x = a.cuda().requires_grad_()
    L.det(x).backward()
    said = capfd.readouterr().err
    assert "the host computes matrix_exp of cuda:0" in said
    assert "the host computes cofactors of cuda:0" in said
    assert "the host computes det " not in said


def test_without_a_library(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TW_DEBUG", "1")
    with installed():
        a = tw.tensor(drawn("float64", 3, 4, 4))
        same(L.eigvalsh(a.cuda()), L.eigvalsh(a))
    assert "the host computes eigvalsh of cuda:0" in capfd.readouterr().err


def test_a_library_that_does_not_work(capfd: pytest.CaptureFixture[str]) -> None:
    def broken(fake: FakeCuda) -> Any:
        made = fake_solver.FakeSolver(fake)
        made.refused["cusolverDnCreate"] = 1
        return made

    with installed(solver=broken):
        a = tw.tensor(drawn("float64", 4, 4))
        same(L.eigvalsh(a.cuda()), L.eigvalsh(a))


def test_a_failed_call_is_an_error(fake: FakeCuda) -> None:
    a = tw.tensor(drawn("float64", 4, 4)).cuda()
    for code, kind, text in (
        (2, OutOfMemoryError, "CUSOLVER_STATUS_ALLOC_FAILED"),
        (7, RuntimeError, "CUSOLVER_STATUS_INTERNAL_ERROR, from cusolverDnXsyevd"),
    ):
        fake.solver.refused["cusolverDnXsyevd"] = code
        with pytest.raises(kind, match=text):
            (L.eigvalsh(a) * code).tolist()


def test_each_stream_has_a_handle_of_its_own(fake: FakeCuda) -> None:
    """What one has given its stream may still run when the next work begins."""
    a = tw.tensor(drawn("float64", 2, 4, 4)).cuda()
    expected = L.svdvals(a.cpu())
    streams = [tw.cuda.Stream() for _ in range(2)]
    tw.cuda.synchronize()
    for stream in streams:
        with tw.cuda.stream(stream):
            same(L.svdvals(a), expected)
    card: Any = devices.get("cuda:0")
    assert len(card.solver._handles) == 2


def test_each_launch_is_waited_for_on_request() -> None:
    with installed(blocking=True, solver=fake_solver.FakeSolver) as fake:
        a = tw.tensor(drawn("float64", 2, 4, 4)).cuda()
        L.svdvals(a) + 1
        tw.ones(1).item()
        assert fake.calls["cuCtxSynchronize"] and not fake._streams[0].todo


def test_two_gpus() -> None:
    with installed(devices=2, solver=fake_solver.FakeSolver):
        a = tw.tensor(drawn("float64", 2, 4, 4))
        for number in (1, 0):
            same(L.eigvalsh(a.cuda(number)), L.eigvalsh(a))


def test_numbers_of_no_device(fake: FakeCuda) -> None:
    a = 2 * tw.eye(3, device="cuda")
    assert L.eigvalsh(a).tolist() == [2, 2, 2] and L.det(a).item() == 8


def test_what_serves_what() -> None:
    """All routines of this machine's forms have a function here."""
    used = {each for found in factors.USES.values() for each in found}
    assert used | {ops.triangular_op} == set(solver._FORMS)
    for form in solver._FORMS.values():
        assert form.symbol in solver.PROTOTYPES


def test_files_in_wheels_and_toolkits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "libcusolver.so.11"
    wheel = tmp_path / "nvidia/cusolver/lib" / name
    toolkit = tmp_path / "cuda/lib64" / name
    for path in (wheel, toolkit):
        path.parent.mkdir(parents=True)
        path.touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    found = list(solver._paths(name))
    assert [found[0], found[-1]] == [str(wheel), name] and str(toolkit) in found


def test_a_search_for_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest one that loads is taken; it is made once."""
    tried = []

    def load(path: str) -> Any:
        tried.append(path)
        if "12" in path:
            raise OSError(f"{path}: cannot open shared object file")
        return object()  # without its functions

    monkeypatch.setattr(solver, "_libraries", None)
    monkeypatch.setattr(solver, "_absence", None)
    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(solver, "_paths", lambda name: [name])
    files = [("libcusolver.so.12", "b"), ("libcusolver.so.11", "c")]
    assert solver._load(files) is None and solver._load(files) is None
    assert tried == ["libcusolver.so.12", "libcusolver.so.11", "c"]
    assert "cusolverDnCreate" in str(solver._absence)
