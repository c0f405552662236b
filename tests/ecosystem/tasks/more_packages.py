"""tensordict, schedulefree, warmup, torch-ema, torch-optimizer, jaxtyping, einx, tensorly."""

import tempfile

import torch
from task import draw, settle, task


@task("tensordict: trees of tensors, files, stacks")
def trees():
    from tensordict import LazyStackedTensorDict, TensorDict, tensorclass

    data = TensorDict(obs=draw(8, 3), action={"of": draw(8, 2)}, batch_size=[8])
    yield "part", data[2:4]["action", "of"]
    yield "stacked", torch.stack([data[:3], data[3:6]])["obs"]
    yield "shaped", data.reshape(2, 4).to(torch.float64)["obs"]
    yield "flat", sorted(data.flatten_keys(".").keys())
    yield "sum", (data * 2).sum(dim=0)["action", "of"]
    yield "chosen", data.where(data["obs"].sum(1) > 0, data * 0)["obs"]
    with tempfile.TemporaryDirectory() as folder:
        data.memmap(folder)
        yield "file", TensorDict.load_memmap(folder)["obs"]
    rows = [TensorDict({"a": draw(n)}, []) for n in (2, 3)]
    yield "lazy", [len(each["a"]) for each in LazyStackedTensorDict.lazy_stack(rows).unbind(0)]

    @tensorclass
    class Pair:
        image: torch.Tensor
        label: torch.Tensor

    pair = Pair(draw(3, 4), draw(3), batch_size=[3])
    yield "class", torch.cat([pair, pair[:1]]).image


@task("tensordict.nn: modules by keys, sampled actions, many parameters at once")
def modules_of_keys():
    from tensordict import TensorDict
    from tensordict.nn import (
        NormalParamExtractor,
        ProbabilisticTensorDictModule,
        TensorDictModule,
        TensorDictSequential,
    )

    net = settle(torch.nn.Sequential(torch.nn.Linear(3, 4), NormalParamExtractor()))
    policy = TensorDictSequential(
        TensorDictModule(net, in_keys=["x"], out_keys=["loc", "scale"]),
        ProbabilisticTensorDictModule(
            in_keys=["loc", "scale"],
            out_keys=["action"],
            distribution_class=torch.distributions.Normal,
            default_interaction_type="mean",
            return_log_prob=True,
        ),
    )
    done = policy(TensorDict({"x": draw(5, 3)}, [5]))
    yield "action", done["action"]
    yield "density", done["action_log_prob"]
    done["action"].sum().backward()
    yield "gradient", net[0].weight.grad
    params = TensorDict.from_module(policy)
    many = params.detach().expand(2).clone()

    def call(params, x):
        with params.to_module(policy):
            return policy(TensorDict({"x": x}, [5]))["loc"]

    yield "many", torch.vmap(call, (0, None))(many, draw(5, 3, seed=1))


def _trained(make, steps=5):
    """The last loss of a small net that an optimizer trains."""
    net = settle(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
    optimizer, x = make(net.parameters()), draw(8, 4, seed=1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
    return loss.detach()


@task("schedulefree, torch-optimizer: many optimizers")
def optimizers():
    import schedulefree
    import torch_optimizer

    for name in ("AdamWScheduleFree", "SGDScheduleFree", "RAdamScheduleFree"):

        def make(params, name=name):
            optimizer = getattr(schedulefree, name)(params, lr=0.05)
            optimizer.train()
            return optimizer

        yield name, _trained(make)
    names = (
        "AccSGD AdaBelief AdaBound AdaMod Adafactor AdamP AggMo Apollo DiffGrad Lamb MADGRAD "
        "NovoGrad PID QHAdam QHM RAdam Ranger RangerQH RangerVA SGDP SGDW SWATS Shampoo Yogi"
    )
    for name in names.split():
        yield name, _trained(getattr(torch_optimizer, name))


@task("pytorch-warmup, torch-ema: rates and averages")
def rates():
    import pytorch_warmup
    from torch_ema import ExponentialMovingAverage

    net = settle(torch.nn.Linear(2, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    warmup, found = pytorch_warmup.UntunedLinearWarmup(optimizer), []
    average = ExponentialMovingAverage(net.parameters(), decay=0.9)
    for _ in range(4):
        net(draw(3, 2)).sum().backward()
        optimizer.step()
        average.update()
        with warmup.dampening():
            schedule.step()
        found.append(optimizer.param_groups[0]["lr"])
    yield "rates", found
    with average.average_parameters():
        yield "average", net.weight.detach().clone()
    yield "own", net.weight.detach()


@task("jaxtyping, einx, tensorly: shapes, notations, decompositions")
def notations():
    import einx
    import tensorly
    from jaxtyping import Float
    from tensorly.decomposition import parafac, tucker

    x = draw(2, 3, 4)
    kinds = (Float[torch.Tensor, "2 3 4"], Float[torch.Tensor, "a a b"])
    yield "types", [isinstance(x, kind) for kind in kinds]
    yield "sum", einx.sum("a [b] c", x)
    yield "dot", einx.dot("a b c, c d -> a b d", x, draw(4, 5))
    tensorly.set_backend("pytorch")
    factors = parafac(x, rank=3, init="svd", n_iter_max=20)
    yield "rest", (tensorly.cp_to_tensor(factors) - x).norm()
    core = tucker(x, rank=[2, 2, 2])
    yield "tucker", tensorly.tucker_to_tensor(core)
