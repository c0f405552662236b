"""Errors for values that an op doesn't allow, found when the graph runs.

A check carries the name of its failure, which prints, parses and travels to other processes.
"""

from __future__ import annotations

from dataclasses import dataclass


class _LinAlgError(RuntimeError):
    """A matrix has no factors, no inverse or no solution of the kind that was asked for.

    The name is that of PyTorch's class, which programs print.
    """


LinAlgError = _LinAlgError


@dataclass(frozen=True)
class Failure:
    """The class of an error, and its text in terms of {index}, {axis} and {size}.

    wraps: whether the user's negative positions count from the end.
    batched: whether a failing index means element {batch} of a batch: index + axis * batch.
    """

    error: type[Exception]
    text: str
    wraps: bool = False
    batched: bool = False

    def at(self, index: int, axis: int, size: int, line: str) -> Exception:
        """The error for an `index` outside of 0 <= index < size; `line` is the user's."""
        if self.wraps and index < 0:
            index -= size
        batch = 0
        if self.batched:
            batch, index = divmod(index, axis)
        text = self.text.format(index=index, axis=axis, size=size, batch=batch)
        return self.error(f"{text} ({line})" if line else text)


_OUT_OF_BOUNDS = "index {index} is out of bounds for dimension {axis} with size {size}"


class _Failures(dict[str, Failure]):
    """Failures by name. A name `ValueError: text` is that of a failure with its own text."""

    def __missing__(self, name: str) -> Failure:
        kind, _, text = name.partition(": ")
        if kind != ValueError.__name__:
            raise KeyError(name)
        return Failure(ValueError, text.replace("{", "{{").replace("}", "}}"))

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or str(name).startswith(f"{ValueError.__name__}: ")


_NAMED = {
    "position": Failure(IndexError, _OUT_OF_BOUNDS),
    "index": Failure(IndexError, _OUT_OF_BOUNDS, wraps=True),
    "element": Failure(RuntimeError, _OUT_OF_BOUNDS),
    "row": Failure(
        IndexError, "index out of range in self: {index} in dimension {axis} with size {size}"
    ),
    "division": Failure(RuntimeError, "ZeroDivisionError: integer division by zero"),
    "target": Failure(IndexError, "Target {index} is out of bounds."),
    "unpool": Failure(
        RuntimeError,
        "Found an invalid max index: {index} (output volumes are of size {size})",
    ),
    "class": Failure(RuntimeError, "target out of range: {index} of {size} classes"),
    "one-hot": Failure(
        RuntimeError,
        "Class values must be non-negative and smaller than num_classes: {index} of {size}",
    ),
    "multinomial": Failure(
        RuntimeError, "probability tensor contains either `inf`, `nan` or element < 0"
    ),
    "multinomial sum": Failure(
        RuntimeError, "invalid multinomial distribution (sum of probabilities <= 0)"
    ),
    "bernoulli": Failure(RuntimeError, "Expected p_in >= 0 && p_in <= 1 to be true, but got false"),
    "cross entropy input": Failure(RuntimeError, "all elements of input should be between 0 and 1"),
    "cross entropy target": Failure(
        RuntimeError, "all elements of target should be between 0 and 1"
    ),
    "normal": Failure(RuntimeError, "normal expects all elements of std >= 0.0"),
    "binomial count": Failure(
        RuntimeError, "expected the counts of trials to be non-negative in binomial"
    ),
    "binomial prob": Failure(RuntimeError, "expected probabilities in [0, 1] in binomial"),
    "istft": Failure(RuntimeError, "istft: at some sample all windows are zero"),
    "poisson": Failure(RuntimeError, "invalid Poisson rate, expected rate to be non-negative"),
}
FAILURES: dict[str, Failure] = _Failures(_NAMED)
"""The failures by name."""

_SINGULAR = (
    "The diagonal element {index} is zero, the inversion could not be completed because the input "
    "matrix is singular."
)
_INDEFINITE = (
    "The factorization could not be completed because the input is not positive-definite (the "
    "leading minor of order {index} is not positive-definite)."
)
_MATRIX = {
    "linalg.cholesky": _INDEFINITE,
    "cholesky": _INDEFINITE,
    "linalg.inv": _SINGULAR,
    "cholesky_inverse": _SINGULAR,
    "torch.linalg.solve": "The solver failed because the input matrix is singular.",
    "linalg.svd": "The algorithm failed to converge because the input matrix contained non-finite "
    "values.",
    "torch.linalg.lstsq": "The least squares solution could not be computed because the input "
    "matrix does not have full rank (error code: {index}).",
}
for _name, _text in _MATRIX.items():
    FAILURES[_name] = Failure(LinAlgError, f"{_name}: {_text}")
    FAILURES[f"{_name} in a batch"] = Failure(
        LinAlgError, f"{_name}: (Batch element {{batch}}): {_text}", batched=True
    )

_NOT_FINITE = "torch.linalg.eig: input tensor should not contain infs or NaNs."
FAILURES["linalg.eig"] = Failure(RuntimeError, _NOT_FINITE)
FAILURES["linalg.eig in a batch"] = Failure(RuntimeError, _NOT_FINITE, batched=True)
_ZERO_PIVOT = (
    "U[{index},{index}] is zero and using it on lu_solve would result in a division by zero. If "
    "you still want to perform the factorization, consider calling linalg.lu(A, pivot) or "
    "linalg.lu_factor_ex(A, pivot)"
)
_ZERO_BLOCK = (
    "D[{index},{index}] is zero and using it on ldl_solve would result in a division by zero. "
    "torch.linalg.ldl_factor_ex gives the factors nevertheless."
)
FAILURES["ldl_factor"] = Failure(RuntimeError, f"torch.linalg.ldl_factor: {_ZERO_BLOCK}")
FAILURES["ldl_factor in a batch"] = Failure(
    RuntimeError,
    f"torch.linalg.ldl_factor: (Batch element {{batch}}): {_ZERO_BLOCK}",
    batched=True,
)
FAILURES["lu_factor"] = Failure(RuntimeError, f"torch.linalg.lu_factor: {_ZERO_PIVOT}")
FAILURES["lu_factor in a batch"] = Failure(
    RuntimeError,
    f"torch.linalg.lu_factor: (Batch element {{batch}}): {_ZERO_PIVOT}",
    batched=True,
)
