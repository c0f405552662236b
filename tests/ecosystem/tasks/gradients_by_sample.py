"""Opacus, BackPACK, snnTorch, ESM: gradients by sample, curvature, spikes, proteins."""

import torch
from task import choose, draw, gradients, settle, task
from torch import nn
from torch.nn import functional as F


@task("Opacus: clipped gradients by sample, through hooks, vmap and PyTorch's own")
def private():
    from opacus import GradSampleModule, PrivacyEngine
    from opacus.grad_sample.gsm_exp_weights import GradSampleModuleExpandedWeights
    from opacus.layers import DPLSTM, DPMultiheadAttention
    from opacus.validators import ModuleValidator

    features = [nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten()]
    net = settle(nn.Sequential(*features, nn.Linear(4 * 36, 3)))
    yield "valid", ModuleValidator.is_valid(net)
    data = torch.utils.data.TensorDataset(draw(16, 1, 8, 8), choose(3, 16))
    model, optimizer, loader = PrivacyEngine(accountant="rdp").make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, batch_size=8),
        noise_multiplier=0.0,
        max_grad_norm=0.5,
        poisson_sampling=False,
    )
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        yield "by sample", model._module[4].weight.grad_sample
        optimizer.step()
        yield "loss", loss.item()

    def words():
        return settle(nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 4), nn.LayerNorm(4)))

    ways = {
        "hooks": lambda: GradSampleModule(words()),
        "vmap": lambda: GradSampleModule(words(), force_functorch=True),
        "PyTorch's": lambda: GradSampleModuleExpandedWeights(words()),
    }
    for name, way in ways.items():
        model = way()
        model(choose(10, 5, 3)).square().sum().backward()
        yield name, [p.grad_sample for p in model.parameters()]
    lstm = GradSampleModule(settle(DPLSTM(4, 5, batch_first=True)))
    lstm(draw(3, 6, 4))[0].sum().backward()
    yield "LSTM", [p.grad_sample for p in lstm.parameters()]
    attention = GradSampleModule(settle(DPMultiheadAttention(8, 2)))
    x = draw(3, 2, 8)
    attention(x, x, x)[0].sum().backward()
    yield "attention", [p.grad_sample for p in attention.parameters()]
    yield "fixed", str(ModuleValidator.fix(nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32))))


@task("BackPACK: gradients by sample, their variance, diagonals and factors of curvature")
def curvature():
    from backpack import backpack, extend, extensions

    net = extend(settle(nn.Sequential(nn.Linear(4, 5), nn.Sigmoid(), nn.Linear(5, 3))))
    loss = extend(nn.CrossEntropyLoss())
    kept = {
        "grad_batch": extensions.BatchGrad(),
        "variance": extensions.Variance(),
        "batch_l2": extensions.BatchL2Grad(),
        "sum_grad_squared": extensions.SumGradSquared(),
        "diag_ggn_exact": extensions.DiagGGNExact(),
        "diag_h": extensions.DiagHessian(),
        "kflr": extensions.KFLR(),
    }
    with backpack(*kept.values()):
        loss(net(draw(6, 4)), choose(3, 6)).backward()
    for name in kept:
        yield name, [getattr(p, name) for p in net.parameters()]


@task("snnTorch: leaky neurons, surrogate gradients, losses of counts")
def spikes():
    import snntorch
    from snntorch import functional, surrogate

    first = snntorch.Leaky(beta=0.9, spike_grad=surrogate.fast_sigmoid())
    second = snntorch.Synaptic(alpha=0.8, beta=0.7)
    layer = settle(nn.Linear(4, 3))
    charge = first.init_leaky()
    current, potential = second.init_synaptic()
    fired, potentials = [], []
    for step in range(6):
        fed = layer(draw(2, 4, seed=step) + 1)
        spike, charge = first(fed, charge)
        out, current, potential = second(spike + fed, current, potential)
        fired.append(out)
        potentials.append(potential)
    loss = functional.ce_count_loss()(torch.stack(fired), torch.tensor([0, 2]))
    loss = loss + torch.stack(potentials).square().mean()
    loss.backward()
    yield "loss", loss
    yield "gradient", layer.weight.grad


@task("ESM-2: tokens of proteins, contacts, gradients")
def proteins():
    from esm.data import Alphabet
    from esm.model.esm2 import ESM2

    alphabet = Alphabet.from_architecture("ESM-1b")
    model = settle(ESM2(num_layers=2, embed_dim=32, attention_heads=4, alphabet=alphabet)).eval()
    _, _, tokens = alphabet.get_batch_converter()([("a", "MKTVRQ"), ("b", "KALTARQ")])
    found = model(tokens, repr_layers=[0, 2], return_contacts=True)
    yield "logits", found["logits"]
    yield "contacts", found["contacts"]
    found["logits"].square().mean().backward()
    yield "gradients", gradients(model)
