"""Why an archive can't be written."""

from __future__ import annotations

import enum

from .dependencies import Graph, Node

__all__ = ["EmptyMatchError", "PackagingError", "PackagingErrorReason"]


class PackagingErrorReason(enum.Enum):
    """What is wrong with a module."""

    IS_EXTENSION_MODULE = (
        "Module is a C extension module. torch.package supports Python modules only."
    )
    NO_DUNDER_FILE = "Module had no __file__ defined."
    SOURCE_FILE_NOT_FOUND = "Module had a __file__, but we could not find it in your filesystem."
    DEPENDENCY_RESOLUTION_FAILED = "Dependency resolution failed."
    NO_ACTION = "Module did not match against any action pattern. Extern, mock, or intern it."
    DENIED = "Module was denied by a pattern."
    MOCKED_BUT_STILL_USED = (
        "Module was mocked out, but is still being used in the package. Please intern or extern "
        "the mocked modules if objects are supposed to be in the package."
    )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}.{self.name}>"


class EmptyMatchError(Exception):
    """No module fits a pattern that must fit one."""


class PackagingError(Exception):
    """Modules that an archive needs can't be in it. dependency_graph: all of its modules."""

    def __init__(self, dependency_graph: Graph, debug: bool = False):
        self.dependency_graph = dependency_graph
        broken: dict[str, list[tuple[str, Node]]] = {}
        for name, node in dependency_graph.nodes.items():
            if node.error is not None:
                broken.setdefault(node.error, []).append((name, node))
        lines = [""]
        for reason, found in broken.items():
            lines.append(f"* {reason}")
            for name, node in found:
                lines.append(f"    {name}")
                if node.context:
                    lines.append(f"      Context: {node.context}")
                if debug:
                    path = " -> ".join(dependency_graph.path_to(name))
                    lines.append(f"      A path to {name}: {path}")
        if not debug:
            lines += [
                "",
                "Set debug=True when invoking PackageExporter for a visualization of where broken "
                "modules are coming from!",
            ]
        super().__init__("\n".join([*lines, ""]))
