"""Archives of TorchScript: their tensors and attributes. Their programs aren't run.

An archive is a zip file with `data.pkl`, a pickle of the module, whose classes are declared below
`code/` in TorchScript, of which the syntax is Python's.
"""

from __future__ import annotations

import ast
from typing import Any, NoReturn

from tilewright.ir.location import at_user_line

from ..nn import Module, Parameter
from ..recording import Handle
from ..serialization.reading import Archive
from .scripting import ScriptModule


class ArchivedModule(ScriptModule):
    """A module of a TorchScript archive: its parameters, buffers and attributes.

    Its program isn't run here, so a call is an error. The state_dict is that of PyTorch.
    """

    _name = "Module"
    _declared: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    _source = ""

    def __setstate__(self, state: dict[str, Any]) -> None:
        Module.__init__(self)
        parameters, buffers = self._declared
        for name, value in state.items():
            if name in parameters:
                wanted = None if value is None else Parameter(value.detach(), value.requires_grad)
                self.register_parameter(name, wanted)
            elif name in buffers or isinstance(value, Handle):
                self.register_buffer(name, value)
            elif isinstance(value, Module):
                self.add_module(name, value)
            elif name != "_is_full_backward_hook":
                setattr(self, name, value)

    def forward(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            f"{self._name} comes from an archive of TorchScript, whose programs tilewright doesn't "
            "run. Make the model from its Python code and load state_dict() into it; or export the "
            f"archive to ONNX with PyTorch, and use torch.onnx.load{at_user_line()}"
        )

    @property
    def original_name(self) -> str:
        return self._name

    @property
    def code(self) -> str:
        return self._source

    def extra_repr(self) -> str:
        return f"original_name={self._name}"


def is_torchscript(archive: Archive) -> bool:
    return archive.has("constants.pkl")


def read(archive: Archive) -> Any:
    """The module in an archive."""
    return archive.unpickle(archive.member("data.pkl"), True, _Classes(archive))


class _Classes:
    """Gives the unpickler the classes that the archive declares."""

    def __init__(self, archive: Archive):
        self.archive = archive
        self.known: dict[tuple[str, str], type] = {}

    def __call__(self, module: str, name: str) -> Any:
        if module == "torch.jit._pickle":
            return _FUNCTIONS.get(name)
        if module != "__torch__" and not module.startswith("__torch__."):
            return None
        if (module, name) not in self.known:
            declared, source = self._declared(module, name)
            fields = {"_name": name, "_declared": declared, "_source": source}
            self.known[module, name] = type(name, (ArchivedModule,), fields)
        return self.known[module, name]

    def _declared(self, module: str, name: str) -> tuple[tuple[frozenset[str], ...], str]:
        """The names of parameters and buffers of a class, and the source of its forward."""
        path = f"code/{module.replace('.', '/')}.py"
        names: dict[str, frozenset[str]] = {}
        source = ""
        if self.archive.has(path):
            text = self.archive.member(path).decode()
            for kind in ast.parse(text).body:
                if not isinstance(kind, ast.ClassDef) or kind.name != name:
                    continue
                for each in kind.body:
                    if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
                        if isinstance(each.value, ast.List):
                            names[each.targets[0].id] = frozenset(ast.literal_eval(each.value))
                    elif isinstance(each, ast.FunctionDef) and each.name == "forward":
                        source = ast.get_source_segment(text, each) or ""
        found = (names.get(f"__{kind}__", frozenset()) for kind in ("parameters", "buffers"))
        return tuple(found), source


def _build(value: Any) -> Any:
    return value


_FUNCTIONS = {
    **{f"build_{kind}list": _build for kind in ("int", "double", "bool", "tensor")},
    "restore_type_tag": lambda value, kind: value,
}
