"""What the inputs and outputs of an exported graph are."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "ConstantArgument",
    "CustomObjArgument",
    "ExportBackwardSignature",
    "ExportGraphSignature",
    "InputKind",
    "InputSpec",
    "OutputKind",
    "OutputSpec",
    "SymBoolArgument",
    "SymFloatArgument",
    "SymIntArgument",
    "TensorArgument",
    "TokenArgument",
]


@dataclass
class TensorArgument:
    name: str


@dataclass
class TokenArgument:
    name: str


@dataclass
class SymIntArgument:
    name: str


@dataclass
class SymFloatArgument:
    name: str


@dataclass
class SymBoolArgument:
    name: str


@dataclass
class CustomObjArgument:
    name: str
    class_fqn: str
    fake_val: Any = None


@dataclass
class ConstantArgument:
    name: str
    value: Any


ArgumentSpec = (
    TensorArgument | SymIntArgument | SymFloatArgument | SymBoolArgument | ConstantArgument
)


class InputKind(enum.Enum):
    USER_INPUT = enum.auto()
    PARAMETER = enum.auto()
    BUFFER = enum.auto()
    CONSTANT_TENSOR = enum.auto()
    CUSTOM_OBJ = enum.auto()
    TOKEN = enum.auto()


class OutputKind(enum.Enum):
    USER_OUTPUT = enum.auto()
    LOSS_OUTPUT = enum.auto()
    BUFFER_MUTATION = enum.auto()
    PARAMETER_MUTATION = enum.auto()
    GRADIENT_TO_PARAMETER = enum.auto()
    GRADIENT_TO_USER_INPUT = enum.auto()
    USER_INPUT_MUTATION = enum.auto()
    TOKEN = enum.auto()


@dataclass
class InputSpec:
    """An input: its kind and node; target: the name of a parameter, buffer or constant."""

    kind: InputKind
    arg: Any
    target: str | None
    persistent: bool | None = None

    def __post_init__(self) -> None:
        if self.kind is InputKind.BUFFER and self.persistent is None:
            raise AssertionError("Failed to specify persistent flag on BUFFER.")

    def __str__(self) -> str:
        more = f" target={self.target!r}" if self.target is not None else ""
        kept = f" persistent={self.persistent}" if self.persistent is not None else ""
        return f"{self.arg.name}: {self.kind.name}{more}{kept}"


@dataclass
class OutputSpec:
    """An output: its kind and node; target: what is overwritten by it."""

    kind: OutputKind
    arg: Any
    target: str | None

    def __str__(self) -> str:
        more = f" target={self.target!r}" if self.target is not None else ""
        return f"{self.arg.name}: {self.kind.name}{more}"


@dataclass
class ExportBackwardSignature:
    gradients_to_parameters: dict[str, str]
    gradients_to_user_inputs: dict[str, str]
    loss_output: str


@dataclass
class ExportGraphSignature:
    """The inputs of a graph in their order: parameters, buffers, constants, then the user's; and
    its outputs."""

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec] = field(default_factory=list)

    def _targets(self, kind: InputKind) -> Iterator[tuple[str, str]]:
        for each in self.input_specs:
            if each.kind is kind and each.target is not None:
                yield each.arg.name, each.target

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(self.inputs_to_parameters.values())

    @property
    def buffers(self) -> tuple[str, ...]:
        return tuple(self.inputs_to_buffers.values())

    @property
    def non_persistent_buffers(self) -> tuple[str, ...]:
        return tuple(
            str(s.target)
            for s in self.input_specs
            if s.kind is InputKind.BUFFER and s.persistent is False
        )

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        return tuple(self.inputs_to_lifted_tensor_constants.values())

    @property
    def lifted_custom_objs(self) -> tuple[str, ...]:
        return tuple(self.inputs_to_lifted_custom_objs.values())

    @property
    def user_inputs(self) -> tuple[Any, ...]:
        """The names of the user's inputs; the value of a constant one that isn't a node."""
        return tuple(
            s.arg.value if isinstance(s.arg, ConstantArgument) else s.arg.name
            for s in self.input_specs
            if s.kind is InputKind.USER_INPUT
        )

    @property
    def user_outputs(self) -> tuple[Any, ...]:
        return tuple(
            s.arg.value if isinstance(s.arg, ConstantArgument) else s.arg.name
            for s in self.output_specs
            if s.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
        )

    @property
    def inputs_to_parameters(self) -> Mapping[str, str]:
        return dict(self._targets(InputKind.PARAMETER))

    @property
    def inputs_to_buffers(self) -> Mapping[str, str]:
        return dict(self._targets(InputKind.BUFFER))

    @property
    def inputs_to_lifted_tensor_constants(self) -> Mapping[str, str]:
        return dict(self._targets(InputKind.CONSTANT_TENSOR))

    @property
    def inputs_to_lifted_custom_objs(self) -> Mapping[str, str]:
        return dict(self._targets(InputKind.CUSTOM_OBJ))

    def _written(self, kind: OutputKind) -> dict[str, str]:
        return {
            s.arg.name: str(s.target)
            for s in self.output_specs
            if s.kind is kind and s.target is not None
        }

    @property
    def buffers_to_mutate(self) -> Mapping[str, str]:
        return self._written(OutputKind.BUFFER_MUTATION)

    @property
    def parameters_to_mutate(self) -> Mapping[str, str]:
        return self._written(OutputKind.PARAMETER_MUTATION)

    @property
    def user_inputs_to_mutate(self) -> Mapping[str, str]:
        return self._written(OutputKind.USER_INPUT_MUTATION)

    @property
    def backward_signature(self) -> ExportBackwardSignature | None:
        """None: exported graphs are of forward passes."""
        return None

    @property
    def assertion_dep_token(self) -> Mapping[int, str] | None:
        return None

    @property
    def input_tokens(self) -> tuple[str, ...]:
        return ()

    @property
    def output_tokens(self) -> tuple[str, ...]:
        return ()

    def replace_all_uses(self, old: str, new: str) -> None:
        """Rename an input or output."""
        specs: list[Any] = [*self.input_specs, *self.output_specs]
        for spec in specs:
            if getattr(spec.arg, "name", None) == old:
                spec.arg.name = new

    def get_replace_hook(self, replace_inputs: bool = False) -> Any:
        """A function (old node, new name, user) that renames outputs, and inputs if wanted."""

        def hook(old: Any, new: str, user: Any) -> None:
            if user.op == "output" or replace_inputs:
                self.replace_all_uses(old.name, new)

        return hook

    def __str__(self) -> str:
        lines = ["", "# inputs", *map(str, self.input_specs), ""]
        return "\n".join([*lines, "# outputs", *map(str, self.output_specs), ""])
