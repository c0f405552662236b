"""Files for networkx graphs: GraphML, DOT and JSON."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import networkx


def write(graph: networkx.Graph, path: str | os.PathLike[str]) -> None:
    """Write a graph to a file in the format of its ending. The folder is made if needed.

    .graphml: for yEd, Gephi and `networkx.read_graphml`; tuples become texts. .json: node-link
    data, for `networkx.node_link_graph(data, edges="edges")`. .dot or .gv: for Graphviz, with a box
    around the nodes of each kernel or device. ValueError for any other ending.
    """
    path = Path(path)
    check_ending(path)
    text = FORMATS[path.suffix.lower()](graph)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def check_ending(path: Path) -> None:
    """Raise ValueError if no format has the ending of `path`."""
    if path.suffix.lower() not in FORMATS:
        raise ValueError(
            f"{path.name}: no graph is written with the ending {path.suffix!r}; expected one of "
            f"{', '.join(FORMATS)}"
        )


def _graphml(graph: networkx.Graph) -> str:
    import networkx

    # GraphML makes an edge's key its id, which must be unique in the file.
    plain = networkx.MultiDiGraph(**_plain(graph.graph))
    plain.add_nodes_from((node, _plain(data)) for node, data in graph.nodes(data=True))
    for i, (source, target, data) in enumerate(graph.edges(data=True)):
        plain.add_edge(source, target, key=f"e{i}", **_plain(data))
    return "\n".join(networkx.generate_graphml(plain)) + "\n"


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes in GraphML's types: numbers, texts, true and false."""
    return {key: _text(value) for key, value in data.items()}


def _text(value: Any) -> Any:
    if isinstance(value, tuple):
        numbers = all(isinstance(v, int) for v in value)
        return f"[{', '.join(map(str, value))}]" if numbers else "; ".join(map(str, value))
    return value


def _json(graph: networkx.Graph) -> str:
    import networkx

    return json.dumps(networkx.node_link_data(graph, edges="edges"), indent=1) + "\n"


def _dot(graph: networkx.Graph) -> str:
    """DOT for Graphviz, with a box for each value of the graph's cluster attribute."""
    boxes: dict[Any, list[str]] = {}
    by = graph.graph.get("cluster")
    for node, data in graph.nodes(data=True):
        value = data.get(by)
        if isinstance(value, tuple):
            value = value[0] if value else None  # the first of several kernels stores it
        boxes.setdefault(value, []).append(f"{_quoted(node)} [{_drawn(node, data)}];")
    lines = [
        f"digraph {_quoted(graph.graph.get('name', 'graph'))} {{",
        f"  label={_quoted(graph.graph.get('title', ''))};",
        '  node [shape=box, style=rounded, fontname="Helvetica", fontsize=10];',
        '  edge [fontname="Helvetica", fontsize=8];',
    ]
    for number, (value, inside) in enumerate(boxes.items()):
        if value is None:
            lines += (f"  {line}" for line in inside)
            continue
        lines.append(f"  subgraph cluster_{number} {{")
        name = f"segment {value}" if by == "segment" else value
        lines.append(f'    label={_quoted(name)}; style="rounded,filled"; fillcolor="#f2f2f2";')
        lines += (f"    {line}" for line in inside)
        lines.append("  }")
    for source, target, data in graph.edges(data=True):
        lines.append(f"  {_quoted(source)} -> {_quoted(target)}{_edge(graph, target, data)};")
    return "\n".join([*lines, "}"]) + "\n"


def _drawn(node: str, data: Mapping[str, Any]) -> str:
    """The DOT attributes of a node."""
    lines = [node]
    if "op" in data:
        lines = [" ".join(filter(None, (node, data["op"], data.get("attrs"))))]
    if "shape" in data:
        lines.append(f"{data['dtype']} {_text(data['shape'])}")
    if "role" in data:
        lines += [_role(role, data) for role in data["role"]]
    if "ops" in data:
        lines += _wrapped(data["ops"])
        lines.append(f"{_bytes(data['bytes_read'])} read, {_bytes(data['bytes_written'])} written")
    if data.get("line"):
        lines.append(data["line"])
    drawn = f"label={_quoted(chr(10).join(lines))}"
    if data.get("type") == "buffer" or data.get("kind") == "leaf":
        drawn += ", style=filled, fillcolor=white"
    if data.get("result") or "result" in data.get("role", ()):
        drawn += ", penwidth=2"
    return drawn


def _role(role: str, data: Mapping[str, Any]) -> str:
    """A buffer's role, with its number or place."""
    if role == "input":
        return f"input {data['leaf']}" if "leaf" in data else "from another device"
    if role == "temporary":
        return f"at byte {data['offset']}"
    if role == "sent":
        return "to another device"
    taken = f", may take input {_text(data['donors'])}" if "donors" in data else ""
    return f"result {_text(data['results'])}{taken}"


def _wrapped(words: tuple[str, ...], width: int = 40) -> list[str]:
    return textwrap.wrap(", ".join(dict.fromkeys(words)), width) or ["no ops told"]


def _edge(graph: networkx.Graph, target: str, data: Mapping[str, Any]) -> str:
    """The DOT attributes of an edge. It shows the number of an operand if there are several."""
    if "shape" in data:
        label = f"{data['dtype']} {_text(data['shape'])}"
        return f" [label={_quoted(label)}]"
    if "operand" in data and "op" in graph.nodes[target] and graph.in_degree(target) > 1:
        return f" [label={data['operand']}]"
    return ""


def _bytes(count: int) -> str:
    from .explanation import size

    return size(count)


def _quoted(text: Any) -> str:
    r"""A string of DOT, with backslashes, quotes and ends of lines escaped."""
    escaped = str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


FORMATS: dict[str, Callable[[networkx.Graph], str]] = {
    ".graphml": _graphml,
    ".dot": _dot,
    ".gv": _dot,
    ".json": _json,
}
