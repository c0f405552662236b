"""Transforms of functions, functions of users, and the objects around a step: loaders, schedules,
hooks, modes, graphs of calls. What doesn't change from step to step is computed once."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np

from . import program, raised, update

NO_END = "nothing in a step ends its epoch, in which each leaf has a number of its own"


def load_duals(torch: Any) -> None:
    """Let PyTorch script its rules of dual numbers, which warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.forward_ad.dual_level():
            torch.autograd.forward_ad.make_dual(torch.ones(1), torch.ones(1))


def of(torch: Any, path: str) -> Any:
    """A module of the framework."""
    return importlib.import_module(f"{torch.__name__}.{path}")


@program(varies=NO_END)
def gradients_of_each_sample(torch, draw):
    """Their results don't require gradients, although the module's own parameters do."""
    F = torch.nn.functional
    model = draw.mlp(3, 4, 2)
    parameters = {k: v.detach() for k, v in model.named_parameters()}

    def loss(p, x, y):
        out = torch.func.functional_call(model, p, (x.unsqueeze(0),))
        return F.cross_entropy(out, y.unsqueeze(0))

    each = torch.vmap(torch.func.grad_and_value(loss), in_dims=(None, 0, 0))
    while True:
        x = draw(4, 3)
        point = model[0].weight.detach()
        inner = torch.func.grad(lambda w: torch.func.grad(lambda v: (v**3 * w).sum())(w).sum())
        yield each(parameters, x, draw.classes(2, 4)), inner(point)


@program(varies=NO_END)
def meta_learning_by_transforms(torch, draw):
    F = torch.nn.functional
    model = draw.mlp(1, 4, 1)
    parameters = {k: v.detach().clone() for k, v in model.named_parameters()}

    def net(p, x):
        return torch.func.functional_call(model, p, (x,))

    def task(p, x, y, xq, yq):
        g = torch.func.grad(lambda p: F.mse_loss(net(p, x), y))(p)
        return F.mse_loss(net({k: p[k] - 0.1 * g[k] for k in p}, xq), yq)

    def mean(p, *tasks):
        return torch.vmap(task, in_dims=(None, 0, 0, 0, 0))(p, *tasks).mean()

    while True:
        g, value = torch.func.grad_and_value(mean)(parameters, *(draw(2, 3, 1) for _ in range(4)))
        parameters = {k: p - 0.1 * g[k] for k, p in parameters.items()}
        yield value, parameters


@program(varies=NO_END)
def dual_numbers_in_place(torch, draw):
    forward_ad = torch.autograd.forward_ad
    load_duals(torch)
    model = draw.mlp(3, 4, 2)
    while True:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(draw(4, 3), draw(4, 3))
            before = dual.clone()
            dual.mul_(2)
            product = forward_ad.unpack_dual(dual * before)
            through = forward_ad.unpack_dual(model(dual))  # its parameters require gradients
            yield forward_ad.unpack_dual(dual), product, through


@program(varies="NumPy computes parts of a step, so it is cut where they are read")
def functions_with_a_vmap_of_their_own(torch, draw):
    class Take(torch.autograd.Function):
        @staticmethod
        def forward(x, places, back, dim):
            return torch.tensor(np.take_along_axis(x.detach().numpy(), places.numpy(), dim))

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs[1:3])
            ctx.dim = inputs[3]

        @staticmethod
        def backward(ctx, g):
            places, back = ctx.saved_tensors
            return Take.apply(g, back, places, ctx.dim), None, None, None

        @staticmethod
        def vmap(info, in_dims, x, places, back, dim):
            whole = [
                t.expand(info.batch_size, *t.shape) if d is None else t.movedim(d, 0)
                for t, d in zip((x, places, back), in_dims)
            ]
            return Take.apply(*whole, dim + 1), 0

    def shuffled(x, places):
        return Take.apply(x, places, places.argsort(0), 0)

    weights = draw(4)
    inside = torch.vmap(torch.func.grad(lambda a, p: (shuffled(a, p) * weights).sum()))
    while True:
        x = draw(3, 4).requires_grad_()
        places = torch.tensor(np.argsort(x.detach().numpy(), 1))
        both = torch.vmap(shuffled)(x.detach(), places)
        (torch.vmap(shuffled)(x, places) * weights).sum().backward()
        yield both, inside(x.detach(), places), x


@program(varies=NO_END)
def derivatives_of_users_once_and_forward(torch, draw):
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            return 2 * g * ctx.saved_tensors[0]

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x**3, 3 * x**2

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0], output[1])
            ctx.save_for_forward(inputs[0], output[1])

        @staticmethod
        def backward(ctx, g, slope):
            x, dx = ctx.saved_tensors
            return g * dx + slope * 6 * x

        @staticmethod
        def jvp(ctx, t):
            x, dx = ctx.saved_tensors
            return t * dx, 6 * x * t

    load_duals(torch)
    while True:
        x = draw(3, requires_grad=True)
        scale = draw(3, requires_grad=True)
        (once,) = torch.autograd.grad((Once.apply(x) * scale).sum(), x, create_graph=True)
        again = raised(once.sum().backward)
        (third,) = torch.autograd.grad(Cube.apply(x)[0].sum(), x, create_graph=True)
        third.sum().backward()
        pushed = torch.func.jvp(lambda x: Cube.apply(x)[0], (x.detach(),), (draw(3),))
        yield once, again, third, x, pushed


@program
def schedules_as_people_derive_them(torch, draw):
    S = torch.optim.lr_scheduler

    class Halving(S._LRScheduler):
        def get_lr(self):
            if not self._get_lr_called_within_step:
                warnings.warn("use get_last_lr()", stacklevel=2)
            return [base / 2**self.last_epoch for base in self.base_lrs]

    model = draw.mlp(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = Halving(optimizer)
    plateau = S.ReduceLROnPlateau(optimizer, patience=0)
    kinds = isinstance(plateau, S.LRScheduler), isinstance(plateau, S._LRScheduler)
    while True:
        update(optimizer, model(draw(3, 2)).pow(2).mean())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            schedule.step()
            schedule.get_lr()
            S.StepLR(optimizer, 2).step(epoch=3)
        told = [(w.category.__name__, str(w.message)[:60]) for w in caught]
        state = {k: v for k, v in schedule.state_dict().items() if k != "_step_count"}
        yield model, schedule.get_last_lr(), told, kinds, state, plateau.mode_worse


@program
def orders_of_loaders(torch, draw):
    D = torch.utils.data
    data = list(range(10))

    class Whole(D.Dataset):
        def __len__(self):
            return 6

        def __getitems__(self, places):
            return [10 * i for i in places]

    def epoch(**options):
        torch.manual_seed(3)
        return [b.tolist() for b in D.DataLoader(data, 3, shuffle=True, **options)]

    loader = D.DataLoader(data, 3)
    found = [
        epoch() == epoch(num_workers=1),
        [b.tolist() for b in D.DataLoader(D.Subset(Whole(), [1, 3, 5]), 2)],
        raised(setattr, loader, "batch_size", 4),
        raised(D.RandomSampler, []),
        D.default_convert({"a": np.ones(2), "b": [np.float32(3)]}),
    ]
    while True:
        yield found


@program
def parameters_after_parametrizations(torch, draw):
    nn = torch.nn
    P = of(torch, "nn.utils.parametrize")

    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).T

    layer = draw.into(nn.Linear(3, 3))
    P.register_parametrization(layer, "weight", Symmetric())
    own = layer.parametrizations.weight.original
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    update(optimizer, layer(draw(2, 3)).pow(2).mean())
    P.remove_parametrizations(layer, "weight")
    named = nn.ModuleDict({"a": nn.ParameterList([torch.ones(2), torch.ones(1)])})
    named["b"] = nn.ParameterDict({"k": torch.ones(2, 3), "n": 3})
    texts = [str(m).replace("float64", "float32") for m in (named["a"], layer)]
    texts.append(str(named["b"]).replace("Double", "Float"))
    del named["a"][0].grad
    while True:
        update(optimizer, layer(draw(2, 3)).pow(2).mean())
        yield layer, own is layer.weight, texts, named["a"][0].grad


@program(varies=NO_END)
def hooks_where_gradients_are_added(torch, draw):
    x = draw(3, requires_grad=True)
    log: list[str] = []
    end = (x * 2).grad_fn.next_functions[0][0]
    end.register_prehook(lambda g: log.append("before"))
    end.register_hook(lambda inputs, g: log.append("after"))
    x.register_hook(lambda g: log.append("tensor"))
    while True:
        log.clear()
        torch.autograd.grad((x * 3).sum(), x)
        asked = list(log)
        (x * 3).sum().backward()
        yield asked, list(log), x


@program
def questions_of_functionals(torch, draw):
    """PyTorch's functions in Python ask with all of their options."""
    F = torch.nn.functional
    asked: list[Any] = []

    class Seen(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            shown = {k: repr(v) for k, v in (kwargs or {}).items() if not torch.is_tensor(v)}
            asked.append((func.__name__, len(args), shown))
            return func(*args, **(kwargs or {}))

    x, image = draw(4, 5), draw(1, 2, 6, 6)
    with Seen():
        F.relu(x)
        F.leaky_relu(x, 0.2)
        F.dropout(x, 0.3, False)
        F.max_pool2d(image, 2)
        F.interpolate(image, scale_factor=2)
        F.layer_norm(x, (5,))
        F.cross_entropy(x, torch.tensor([0, 1, 2, 3]), label_smoothing=0.1)
        F.linear(x, x)
        F.gelu(x)
        torch.relu(x)
    while True:
        yield asked


@program(varies=NO_END)
def graphs_of_calls_in_parts(torch, draw):
    fx = of(torch, "fx")
    rewriter = of(torch, "fx.subgraph_rewriter")
    support = of(torch, "fx.passes.operator_support")
    partitioner = of(torch, "fx.passes.infra.partitioner").CapabilityBasedPartitioner
    manager = of(torch, "fx.passes.infra.pass_manager")

    def traced():
        return fx.symbolic_trace(lambda x: torch.relu(torch.add(x, 1)).sum() + torch.add(x, 2))

    class Some(support.OperatorSupport):
        def is_node_supported(self, modules, node):
            return node.op == "call_function" and node.target in (torch.relu, torch.add)

    fused = partitioner(traced(), Some(), allows_single_node_partition=True).partition_and_fuse()
    several = fx.symbolic_trace(lambda x, y: (x + y).relu() * (x - y).sin())
    matches = rewriter.replace_pattern(
        several,
        lambda a, b: (torch.add(a, b) if a is None else a + b, a - b),
        lambda a, b: (a * b, a / b),
    )
    literals = fx.symbolic_trace(lambda x: torch.add(x, 3) * 2)
    rewriter.replace_pattern_with_filters(
        literals, lambda x: torch.add(x, 1), lambda x: torch.sub(x, 1), ignore_literals=True
    )

    def to_sin(gm):
        for node in gm.graph.nodes:
            if node.target is torch.relu:
                node.target = torch.sin

    passes = manager.PassManager([manager.pass_result_wrapper(to_sin)])
    changed = passes(traced())
    while True:
        x, y = draw(3), draw(3)
        yield fused(x), several(x, y), literals(x), changed.graph_module(x), changed.modified
        yield fused.code, several.code, literals.code, [str(m.anchor) for m in matches]


@program
def small_objects(torch, draw):
    pytree, dlpack = of(torch, "utils._pytree"), of(torch, "utils.dlpack")
    torch.set_default_device("meta")
    torch.set_default_device(None)
    quantized = of(torch, "nn.quantized").FloatFunctional()
    functional = torch.nn.functional
    found = [
        str(torch.zeros(1).device),
        repr(pytree.tree_structure({"a": [1, (2, 3)], "b": 4})),
        raised(torch.cuda.FloatTensor, [1.0]) if not torch.cuda.is_available() else None,
        functional._canonical_mask(
            torch.tensor([True, False]), "mask", None, "", torch.float32, check_other=False
        ),
        raised(functional._mha_shape_check, *[torch.ones(3)] * 3, None, None, 1),
        raised(functional.cross_entropy, torch.ones(2, 3), torch.tensor([1])),
        raised(functional.nll_loss, torch.ones(3), torch.tensor([1, 2])),
        raised(functional.local_response_norm, torch.ones(2), 2),
    ]
    while True:
        x = draw(3)
        shared = dlpack.from_dlpack(dlpack.to_dlpack(x))
        shared.mul_(2)
        yield found, x, quantized.add_relu(x, draw(3)), quantized.cat([x, x])
