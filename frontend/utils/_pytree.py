"""torch.utils._pytree: nested containers as a flat list of leaves and a description."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple

from .. import overriding

PyTree = Any
Context = Any
IsLeaf = Callable[[Any], bool] | None
FlattenFunc = Callable[[Any], tuple[list[Any], Any]]
UnflattenFunc = Callable[[Iterable[Any], Any], Any]


class NodeDef(NamedTuple):
    """How to take a container apart and make it again.

    flatten_fn: container -> (children, context). unflatten_fn: (children, context) -> container.
    flatten_with_keys_fn: container -> ([(key, child)], context).
    """

    type: type[Any]
    flatten_fn: FlattenFunc
    unflatten_fn: UnflattenFunc
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None


@dataclass(frozen=True)
class SequenceKey:
    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        return sequence[self.idx]


@dataclass(frozen=True)
class MappingKey:
    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        return mapping[self.key]


@dataclass(frozen=True)
class GetAttrKey:
    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        return getattr(obj, self.name)


KeyPath = tuple[Any, ...]
SUPPORTED_NODES: dict[type[Any], NodeDef] = {}


class _Serialized(NamedTuple):
    name: str
    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]


SUPPORTED_SERIALIZED_TYPES: dict[type[Any], _Serialized] = {}


def register_pytree_node(
    cls: type[Any],
    flatten_fn: FlattenFunc,
    unflatten_fn: UnflattenFunc,
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Callable[[Any], Any] | None = None,
    from_dumpable_context: Callable[[Any], Any] | None = None,
    flatten_with_keys_fn: Any = None,
) -> None:
    """Treat instances of a class as containers."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    if hasattr(cls, "__torch_function__"):
        overriding.watch()  # nothing else announces containers that functions have to ask
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    SUPPORTED_SERIALIZED_TYPES[cls] = _Serialized(
        serialized_type_name or f"{cls.__module__}.{cls.__qualname__}",
        to_dumpable_context or (lambda context: context),
        from_dumpable_context or (lambda context: context),
    )


_register_pytree_node = register_pytree_node


def register_dataclass(
    cls: type[Any],
    *,
    field_names: list[str] | None = None,
    drop_field_names: list[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:
    """Treat instances of a dataclass as containers of their fields.

    field_names: of the fields that are parts, by default all that __init__ takes; the others,
    drop_field_names, are left to their defaults.
    """
    if not is_dataclass(cls):
        raise AssertionError(f"Only dataclasses can be registered with this function: {cls}")
    names = [f.name for f in fields(cls) if f.init]
    if field_names is None:
        field_names = [n for n in names if n not in (drop_field_names or ())]
    own = tuple(field_names)

    def flatten(value: Any) -> tuple[list[Any], Any]:
        return [getattr(value, name) for name in own], own

    def unflatten(values: Iterable[Any], names: Any) -> Any:
        return cls(**dict(zip(names, values, strict=True)))

    def with_keys(value: Any) -> tuple[list[tuple[Any, Any]], Any]:
        return [(GetAttrKey(name), getattr(value, name)) for name in own], own

    register_pytree_node(
        cls,
        flatten,
        unflatten,
        serialized_type_name=serialized_type_name,
        flatten_with_keys_fn=with_keys,
    )


def is_namedtuple_class(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")


def is_namedtuple_instance(tree: Any) -> bool:
    return is_namedtuple_class(type(tree))


def is_namedtuple(obj: Any) -> bool:
    """Whether an object is a named tuple, or a class of such tuples."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_class(cls: Any) -> bool:
    """Whether a class is one of C's named tuples, as `time.struct_time`; a function's named results
    are Python's here."""
    counts = ("n_fields", "n_sequence_fields", "n_unnamed_fields")
    return (
        isinstance(cls, type)
        and cls.__bases__ == (tuple,)
        and all(isinstance(getattr(cls, n, None), int) for n in counts)
    )


def is_structseq_instance(obj: Any) -> bool:
    return is_structseq_class(type(obj))


is_structseq = is_structseq_instance


def _list_flatten(tree: Any) -> tuple[list[Any], Any]:
    return list(tree), None


def _list_unflatten(values: Iterable[Any], context: Any) -> list[Any]:
    return list(values)


def _dict_flatten(tree: Any) -> tuple[list[Any], Any]:
    return list(tree.values()), list(tree)


def _dict_unflatten(values: Iterable[Any], context: Any) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))


def _sequence_with_keys(tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
    values, context = SUPPORTED_NODES[_get_node_type(tree)].flatten_fn(tree)
    return [(SequenceKey(i), v) for i, v in enumerate(values)], context


_list_flatten_with_keys = _sequence_with_keys


def _dict_flatten_with_keys(tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
    values, context = SUPPORTED_NODES[_get_node_type(tree)].flatten_fn(tree)
    return [(MappingKey(k), v) for k, v in zip(tree, values, strict=True)], context


def _namedtuple_with_keys(tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return [(GetAttrKey(n), v) for n, v in zip(tree._fields, tree, strict=True)], type(tree)


for _cls, _flatten, _unflatten, _with_keys in (
    (tuple, _list_flatten, lambda v, c: tuple(v), _sequence_with_keys),
    (list, _list_flatten, _list_unflatten, _sequence_with_keys),
    (dict, _dict_flatten, _dict_unflatten, _dict_flatten_with_keys),
    (
        OrderedDict,
        _dict_flatten,
        lambda v, c: OrderedDict(zip(c, v, strict=True)),
        _dict_flatten_with_keys,
    ),
    (
        defaultdict,
        lambda d: (list(d.values()), [d.default_factory, list(d)]),
        lambda v, c: defaultdict(c[0], zip(c[1], v, strict=True)),
        _dict_flatten_with_keys,
    ),
    (deque, lambda d: (list(d), d.maxlen), lambda v, c: deque(v, maxlen=c), _sequence_with_keys),
):
    register_pytree_node(_cls, _flatten, _unflatten, flatten_with_keys_fn=_with_keys)  # type: ignore[arg-type]


def _namedtuple_flatten(tree: Any) -> tuple[list[Any], Any]:
    return list(tree), type(tree)


def _namedtuple_unflatten(values: Any, context: Any) -> Any:
    return context(*values)


BUILTIN_TYPES = frozenset(SUPPORTED_NODES)
_NAMEDTUPLE = NodeDef(tuple, _namedtuple_flatten, _namedtuple_unflatten, _namedtuple_with_keys)


def _get_node_type(tree: Any) -> Any:
    return type(tree)


def _node_of(tree: Any) -> NodeDef | None:
    found = SUPPORTED_NODES.get(type(tree))
    return _NAMEDTUPLE if found is None and is_namedtuple_instance(tree) else found


@dataclass(frozen=True)
class TreeSpec:
    """The description of a tree: the class of its root, that class's context, its children.

    A leaf has no class.
    """

    type: Any
    context: Any
    children_specs: list[TreeSpec] = field(default_factory=list)

    @property
    def num_leaves(self) -> int:
        return 1 if self.is_leaf() else sum(c.num_leaves for c in self.children_specs)

    @property
    def num_nodes(self) -> int:
        return 1 + sum(c.num_nodes for c in self.children_specs)

    @property
    def num_children(self) -> int:
        return len(self.children_specs)

    def is_leaf(self) -> bool:
        return self.type is None

    def children(self) -> list[TreeSpec]:
        return list(self.children_specs)

    def child(self, index: int) -> TreeSpec:
        return self.children_specs[index]

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The subtrees of `tree` at the places of this tree's leaves."""
        if self.is_leaf():
            return [tree]
        node = _node_of(tree)
        if node is None or type(tree) is not self.type:
            raise ValueError(f"Type mismatch; expected {self.type}, but got {type(tree)}.")
        children, context = node.flatten_fn(tree)
        if context != self.context or len(children) != self.num_children:
            raise ValueError(
                f"Node context mismatch for {self.type}: expected {self.context!r} with "
                f"{self.num_children} children, got {context!r} with {len(children)}."
            )
        return [
            leaf
            for spec, child in zip(self.children_specs, children, strict=True)
            for leaf in spec.flatten_up_to(child)
        ]

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec refers"
                f" to a pytree that holds {self.num_leaves} items ({self})."
            )
        return self._made(iter(leaves))

    def _made(self, leaves: Iterator[Any]) -> Any:
        if self.is_leaf():
            return next(leaves)
        children = [spec._made(leaves) for spec in self.children_specs]
        node = SUPPORTED_NODES.get(self.type, _NAMEDTUPLE)
        return node.unflatten_fn(children, self.context)

    def __hash__(self) -> int:
        return hash((self.type, repr(self.context), tuple(self.children_specs)))

    def __repr__(self, indent: int = 0) -> str:
        """One line for each child behind the first, indented by its depth."""
        if self.is_leaf():
            return "*"
        inner = indent + 2
        children = f",\n{' ' * inner}".join(c.__repr__(inner) for c in self.children_specs)
        return f"TreeSpec({self.type.__name__}, {self.context}, [{children}])"


PyTreeSpec = TreeSpec


class LeafSpec(TreeSpec):
    """The description of a leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])

    def __hash__(self) -> int:
        return hash(None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeSpec) and other.is_leaf()


def treespec_leaf() -> TreeSpec:
    return _LEAF


_LEAF = LeafSpec()


def tree_is_leaf(tree: Any, is_leaf: IsLeaf = None) -> bool:
    return (is_leaf is not None and is_leaf(tree)) or _node_of(tree) is None


def tree_flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of a tree, from left to right, and its description."""
    leaves: list[Any] = []
    return leaves, _flatten_into(tree, leaves, is_leaf)


def _flatten_into(tree: Any, leaves: list[Any], is_leaf: IsLeaf) -> TreeSpec:
    node = None if is_leaf is not None and is_leaf(tree) else _node_of(tree)
    if node is None:
        leaves.append(tree)
        return _LEAF
    children, context = node.flatten_fn(tree)
    return TreeSpec(type(tree), context, [_flatten_into(c, leaves, is_leaf) for c in children])


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The tree with this description and these leaves."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            "tree_unflatten(leaves, treespec): Expected `treespec` to be instance of TreeSpec but "
            f"got item of type {type(treespec)}."
        )
    return treespec.unflatten(leaves)


def tree_iter(tree: Any, is_leaf: IsLeaf = None) -> Iterator[Any]:
    return iter(tree_flatten(tree, is_leaf)[0])


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: IsLeaf = None) -> TreeSpec:
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """The tree of func(leaf, …) of one tree or of several of the same form."""
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves, *(spec.flatten_up_to(rest) for rest in rests)]
    return spec.unflatten(map(func, *columns))


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """Call func at each leaf; returns the tree itself."""
    leaves, spec = tree_flatten(tree, is_leaf)
    for each in zip(leaves, *(spec.flatten_up_to(rest) for rest in rests), strict=True):
        func(*each)
    return tree


def map_only(kind: Any, /) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """A decorator: the function is called with what is of `kind` (a class, several, or a
    condition); anything else is left as it is."""
    is_one = kind if callable(kind) and not isinstance(kind, type) else None

    def wrapper(func: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def inner(x: Any) -> Any:
            fits = is_one(x) if is_one is not None else isinstance(x, kind)
            return func(x) if fits else x

        return inner

    return wrapper


def tree_map_only(kind: Any, func: Any, tree: Any, is_leaf: IsLeaf = None) -> Any:
    return tree_map(map_only(kind)(func), tree, is_leaf=is_leaf)


def tree_map_only_(kind: Any, func: Any, tree: Any, is_leaf: IsLeaf = None) -> Any:
    return tree_map_(map_only(kind)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(kind: Any, pred: Any, tree: Any, is_leaf: IsLeaf = None) -> bool:
    return all(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, kind))


def tree_any_only(kind: Any, pred: Any, tree: Any, is_leaf: IsLeaf = None) -> bool:
    return any(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, kind))


def tree_flatten_with_path(
    tree: Any, is_leaf: IsLeaf = None
) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """As `tree_flatten`, each leaf with the keys that lead to it."""
    found: list[tuple[KeyPath, Any]] = []

    def walk(path: KeyPath, tree: Any) -> None:
        node = None if is_leaf is not None and is_leaf(tree) else _node_of(tree)
        if node is None:
            found.append((path, tree))
            return
        if node.flatten_with_keys_fn is None:
            raise ValueError(
                f"Did not find a flatten_with_keys_fn for type: {type(tree)}. Please pass a "
                "flatten_with_keys_fn argument to register_pytree_node."
            )
        for key, child in node.flatten_with_keys_fn(tree)[0]:
            walk((*path, key), child)

    walk((), tree)
    return found, tree_structure(tree, is_leaf)


def tree_leaves_with_path(tree: Any, is_leaf: IsLeaf = None) -> list[tuple[KeyPath, Any]]:
    return tree_flatten_with_path(tree, is_leaf)[0]


def tree_map_with_path(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None
) -> Any:
    """As `tree_map`, with the keys as the first argument."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    columns = [[p for p, _ in pairs], [x for _, x in pairs]]
    columns += [spec.flatten_up_to(rest) for rest in rests]
    return spec.unflatten(map(func, *columns))


def keystr(kp: KeyPath) -> str:
    """The keys as they would be written behind the tree's name."""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: KeyPath) -> Any:
    for key in kp:
        obj = key.get(obj)
    return obj


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """A description as JSON text."""

    def plain(spec: TreeSpec) -> Any:
        if spec.is_leaf():
            return {"type": None, "context": None, "children_spec": []}
        kind = SUPPORTED_SERIALIZED_TYPES.get(spec.type)
        if kind is None:
            raise NotImplementedError(f"Serializing {spec.type} in pytree is not registered.")
        return {
            "type": kind.name,
            "context": json.dumps(kind.dump(spec.context)),
            "children_spec": [plain(c) for c in spec.children_specs],
        }

    return json.dumps([1, plain(treespec)])


def treespec_loads(serialized: str) -> TreeSpec:
    """The description that `treespec_dumps` wrote."""
    by_name = {kind.name: (cls, kind) for cls, kind in SUPPORTED_SERIALIZED_TYPES.items()}

    def made(plain: Any) -> TreeSpec:
        if plain["type"] is None:
            return _LEAF
        if plain["type"] not in by_name:
            raise NotImplementedError(f"Deserializing {plain['type']} in pytree is not registered.")
        cls, kind = by_name[plain["type"]]
        context = kind.load(json.loads(plain["context"]))
        return TreeSpec(cls, context, [made(c) for c in plain["children_spec"]])

    return made(json.loads(serialized)[1])


def treespec_pprint(treespec: TreeSpec) -> str:
    return repr(treespec.unflatten(["*"] * treespec.num_leaves)).replace("'*'", "*")
