"""Optimizers and schedules against PyTorch, and against their formulas."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections import OrderedDict

import numpy as np
import pytest

import tilewright as tw
import tilewright.nn as nn

pytestmark = pytest.mark.computes

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 5)).astype(np.float32)
Y = RNG.integers(0, 3, 8)

OPTIMIZERS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.01, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("Adam", {}),
    ("Adam", {"lr": 0.01, "betas": (0.8, 0.9), "eps": 1e-5, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.01, "amsgrad": True, "maximize": True}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.3}),
    ("AdamW", {"lr": 0.01, "amsgrad": True}),
    ("RMSprop", {}),
    ("RMSprop", {"momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.1}),
    ("Adamax", {"lr": 0.01}),
    ("Adamax", {"betas": (0.8, 0.9), "eps": 1e-5, "weight_decay": 0.1, "maximize": True}),
    ("NAdam", {"lr": 0.01}),
    ("NAdam", {"momentum_decay": 0.01, "weight_decay": 0.1, "maximize": True}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.01}),
    ("RAdam", {"betas": (0.8, 0.7), "weight_decay": 0.1, "maximize": True}),
    ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.5, "rho": 0.8, "eps": 1e-4, "weight_decay": 0.1, "maximize": True}),
    ("Rprop", {}),
    ("Rprop", {"lr": 0.1, "etas": (0.4, 1.3), "step_sizes": (1e-3, 0.11), "maximize": True}),
]


def models(torch, seed=0):
    torch.manual_seed(seed)
    theirs = torch.nn.Sequential(
        torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3, bias=False)
    )
    ours = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3, bias=False))
    ours.load_state_dict({k: tw.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    return ours, theirs


def train(lib, model, optimizer, steps, scheduler=None):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = lib.nn.functional.cross_entropy(model(lib.tensor(X)), lib.tensor(Y))
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        losses.append(loss.item())
    return losses


def same_weights(ours, theirs, tol=2e-5):
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=tol, atol=tol)


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=str)
def test_steps_and_state_are_pytorchs(torch, name, options):
    ours, theirs = models(torch)
    o = getattr(tw.optim, name)(ours.parameters(), **options)
    p = getattr(torch.optim, name)(theirs.parameters(), **options)
    np.testing.assert_allclose(train(tw, ours, o, 5), train(torch, theirs, p, 5), rtol=1e-5)
    same_weights(ours, theirs)
    a, b = o.state_dict(), p.state_dict()
    assert set(a["param_groups"][0]) == set(b["param_groups"][0])
    assert a["param_groups"][0]["params"] == b["param_groups"][0]["params"]
    assert list(a["state"]) == list(b["state"])
    for i, state in a["state"].items():
        assert set(state) == set(b["state"][i])
        for key, value in state.items():
            np.testing.assert_allclose(
                value.numpy(), b["state"][i][key].numpy(), rtol=1e-4, atol=1e-6, err_msg=key
            )
            assert tuple(value.shape) == tuple(b["state"][i][key].shape)
    # A new optimizer goes on where the state_dict was taken.
    other, _ = models(torch)
    other.load_state_dict(ours.state_dict())
    again = getattr(tw.optim, name)(other.parameters(), **options)
    again.load_state_dict(pickle.loads(pickle.dumps(a)))
    train(tw, ours, o, 3), train(tw, other, again, 3)
    for q, r in zip(ours.parameters(), other.parameters(), strict=True):
        np.testing.assert_array_equal(q.detach().numpy(), r.detach().numpy())
    train(torch, theirs, p, 3)
    same_weights(ours, theirs)


def test_groups_with_options_of_their_own(torch):
    ours, theirs = models(torch)

    def groups(model):
        return [{"params": model[0].parameters()}, {"params": [model[2].weight], "lr": 0.5}]

    o, p = tw.optim.SGD(groups(ours), lr=0.1), torch.optim.SGD(groups(theirs), lr=0.1)
    train(tw, ours, o, 3), train(torch, theirs, p, 3)
    same_weights(ours, theirs)
    assert [g["lr"] for g in o.param_groups] == [0.1, 0.5]


def test_parameters_without_gradient_are_skipped(torch):
    ours, theirs = models(torch)
    o, p = tw.optim.Adam(ours.parameters()), torch.optim.Adam(theirs.parameters())
    for lib, model, optimizer in ((tw, ours, o), (torch, theirs, p)):
        model[0].weight.requires_grad_(False)
        train(lib, model, optimizer, 2)
        model[0].weight.requires_grad_(True)  # from here on its step count is another
        train(lib, model, optimizer, 2)
    same_weights(ours, theirs)
    steps = [s["step"].item() for s in o.state_dict()["state"].values()]
    assert sorted(steps) == [2, 4, 4]


def test_half_and_double_parameters(torch):
    for dtype in ("float64", "bfloat16"):
        values, grad = RNG.normal(size=7), RNG.normal(size=7)
        results = []
        for lib in (tw, torch):
            w = lib.nn.Parameter(lib.tensor(values).to(getattr(lib, dtype)))
            optimizer = lib.optim.AdamW([w], lr=0.1)
            for _ in range(3):
                w.grad = lib.tensor(grad).to(getattr(lib, dtype))
                optimizer.step()
            results.append(w.detach().to(lib.float64).numpy())
        tol = 1e-12 if dtype == "float64" else 2e-2
        np.testing.assert_allclose(*results, rtol=tol, atol=tol)


def test_adam_against_its_formula():
    w = nn.Parameter(tw.tensor([1.0, -2.0], dtype=tw.float64))
    optimizer = tw.optim.Adam([w], lr=0.1, betas=(0.8, 0.9), eps=1e-3)
    value, m, v = np.array([1.0, -2.0]), 0.0, 0.0
    for t in range(1, 6):
        optimizer.zero_grad()
        (w**3).sum().backward()
        optimizer.step()
        g = 3 * value**2
        m, v = 0.8 * m + 0.2 * g, 0.9 * v + 0.1 * g * g
        value = value - 0.1 * (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.9**t)) + 1e-3)
        np.testing.assert_allclose(w.detach().numpy(), value, rtol=1e-12)


def test_closures_hooks_and_returned_loss():
    w = nn.Parameter(tw.tensor([4.0]))
    optimizer = tw.optim.SGD([w], lr=0.25)
    seen = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    handle = optimizer.register_step_post_hook(lambda *_: seen.append("after"))

    def closure():
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    with tw.no_grad():
        assert optimizer.step(closure).item() == 16
    assert w.item() == 2 and seen == ["before", "after"] and w.requires_grad
    handle.remove()
    optimizer.step(closure)
    assert seen == ["before", "after", "before"]


def test_zero_grad_and_accumulation():
    w = nn.Parameter(tw.ones(2))
    optimizer = tw.optim.SGD([w], lr=1.0)
    for _ in range(2):
        (w * 2).sum().backward()
    assert w.grad.tolist() == [4, 4]
    optimizer.zero_grad(set_to_none=False)
    assert w.grad.tolist() == [0, 0]
    optimizer.zero_grad()
    assert w.grad is None
    optimizer.step()
    assert w.tolist() == [1, 1]


def test_views_and_aliases_see_the_step():
    w = nn.Parameter(tw.ones(2, 2))
    row, state = w.detach()[0], w.detach()
    optimizer = tw.optim.SGD([w], lr=1.0)
    (w * 3).sum().backward()
    optimizer.step()
    assert row.tolist() == [-2, -2] and state.sum().item() == -8
    kept = w.detach().clone()
    (w * 1).sum().backward()
    optimizer.step()
    assert kept.sum().item() == -8 and row.tolist() == [-6, -6]


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_parameters_that_numpy_sees(name):
    """Arrays of several parameters are handed out: a step lands in all of them."""
    params = [nn.Parameter(tw.full((3,), v)) for v in (1.0, 2.0, 3.0)]
    twins = [nn.Parameter(tw.full((3,), v)) for v in (1.0, 2.0, 3.0)]
    optimizers = [getattr(tw.optim, name)(each, lr=0.1) for each in (params, twins)]
    arrays = [p.detach().numpy() for p in params]
    for _ in range(3):
        for each, optimizer in zip((params, twins), optimizers):
            optimizer.zero_grad()
            sum(p.square().sum() for p in each).backward()
            optimizer.step()
        for array, p, q in zip(arrays, params, twins):
            np.testing.assert_array_equal(array, np.array(q.tolist(), np.float32))
            assert p.tolist() == q.tolist()


def test_the_end_of_a_step_writes_parameters_that_numpy_sees(monkeypatch):
    """Forward and backward pass are computed once, with the loss that is read later."""
    from tilewright.recording import flushing

    def alone(nodes, buffers):
        raise AssertionError("values were computed beside the flush that ends the step")

    monkeypatch.setattr(flushing, "computed", alone)
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(6)))
    optimizer = tw.optim.SGD(model.parameters(), lr=0.1)
    arrays = [p.detach().numpy() for p in model.parameters()]
    for _ in range(2):
        loss = model(tw.ones(2, 4)).square().sum()
        optimizer.zero_grad()
        loss.backward()
        before = [a.copy() for a in arrays]
        optimizer.step()
        assert loss._node is None and loss._buffer is not None
        for array, old, p in zip(arrays, before, model.parameters()):
            np.testing.assert_allclose(array, old - 0.1 * p.grad.numpy(), rtol=1e-5, atol=1e-6)
            assert (array != old).any()


def test_a_failed_step_writes_no_parameter_that_numpy_sees():
    table = nn.Parameter(tw.ones(3, 2))
    other = nn.Parameter(tw.ones(2))
    arrays = [p.detach().numpy() for p in (table, other)]
    optimizer = tw.optim.SGD([other, table], lr=0.1)
    (table[tw.tensor([0, 7])] * other).sum().backward()
    with pytest.raises(IndexError):
        optimizer.step()
    assert all((a == 1).all() for a in arrays)
    optimizer.zero_grad()
    (table[tw.tensor([0, 2])] * other).sum().backward()
    optimizer.step()
    np.testing.assert_allclose(arrays[0], [[0.9, 0.9], [1, 1], [0.9, 0.9]])
    np.testing.assert_allclose(arrays[1], [0.8, 0.8])


@pytest.mark.parametrize(
    "options", [{}, {"nesterov": True}, {"dampening": 0.5}, {"weight_decay": 0.1}], ids=str
)
def test_momentum_of_a_parameter_that_a_group_names_twice(torch, options):
    """Both updates of the first step begin with the gradient itself."""
    seen = []
    for m in (tw, torch):
        w = m.ones(2, requires_grad=True)
        with pytest.warns(UserWarning, match="duplicate"):
            optimizer = m.optim.SGD([w, w], lr=0.1, momentum=0.9, foreach=False, **options)
        for _ in range(3):
            optimizer.zero_grad()
            (w**2).sum().backward()
            optimizer.step()
            seen.append(w[0].item())
    assert seen[:3] == pytest.approx(seen[3:], rel=1e-6)


def test_a_group_that_names_a_parameter_twice_and_numpy_sees_it(torch):
    results = []
    for lib in (tw, torch):
        p = lib.nn.Parameter(lib.ones(3))
        array = p.detach().numpy()
        with pytest.warns(UserWarning, match="duplicate"):
            optimizer = lib.optim.SGD([p, p], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            p.square().sum().backward()
            optimizer.step()
        results.append(np.array(array))
    np.testing.assert_allclose(*results, rtol=1e-6)


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_parameters_in_one_memory_that_numpy_sees(torch, name):
    """Views of one array, as flattened parameters are: each write begins with the one before."""
    results = []
    for lib in (tw, torch):
        memory = lib.arange(6.0)
        array = memory.numpy()
        params = [memory[:2], memory[2:5], memory[5:]]
        optimizer = getattr(lib.optim, name)(params, lr=0.1)
        for _ in range(3):
            for p in params:
                p.grad = p.detach() + 1
            optimizer.step()
        results.append(np.array(array))
        assert memory.tolist() == array.tolist()
    np.testing.assert_allclose(*results, rtol=1e-6)


def test_a_repeated_step_is_one_record_and_makes_no_nodes(monkeypatch):
    """Changing rates and step counts are run-time inputs: nothing is built anew."""
    from tilewright.ir import node as graph
    from tilewright.optim import adam

    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = tw.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = tw.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    x, y = tw.randn(3, 4), tw.tensor([0, 1, 1])
    calls, inner = [], adam._adam

    def counted(*args):
        calls.append(1)
        return inner(*args)

    monkeypatch.setattr(adam, "_adam", counted)

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        scheduler.step()

    for _ in range(3):
        step()
    before = graph.table_size()
    assert len(calls) <= 2  # the first epoch numbers its leaves differently
    for _ in range(5):
        step()
    assert graph.table_size() == before


def test_errors():
    w = nn.Parameter(tw.ones(1))
    with pytest.raises(ValueError, match="empty parameter list"):
        tw.optim.SGD([], lr=1)
    with pytest.raises(TypeError, match="iterable of Tensors or dicts"):
        tw.optim.SGD(w, lr=1)
    with pytest.raises(TypeError, match="can only optimize Tensors"):
        tw.optim.SGD([1.0], lr=1)
    with pytest.raises(ValueError, match="non-leaf"):
        tw.optim.SGD([w * 2], lr=1)
    with pytest.raises(ValueError, match="Invalid learning rate: -1"):
        tw.optim.Adam([w], lr=-1)
    with pytest.raises(ValueError, match=r"beta parameter at index 0: 1\.5"):
        tw.optim.Adam([w], betas=(1.5, 0.9))
    with pytest.raises(ValueError, match="Nesterov momentum requires"):
        tw.optim.SGD([w], lr=1, nesterov=True)
    with pytest.warns(UserWarning, match="duplicate parameters"):
        twice = tw.optim.SGD([w, w], lr=1)
    w.grad = tw.ones(1)
    twice.step()
    assert w.item() == -1  # updated twice
    with pytest.raises(ValueError, match="more than one parameter group"):
        tw.optim.SGD([{"params": [w]}, {"params": [w]}], lr=1)
    optimizer = tw.optim.SGD([w], lr=1)
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optimizer.load_state_dict({"state": {}, "param_groups": []})
    with pytest.raises(ValueError, match="size of optimizer's group"):
        optimizer.load_state_dict({"state": {}, "param_groups": [{"params": [0, 1]}]})
    with pytest.raises(AttributeError, match="no 'Nothing'"):
        _ = tw.optim.Nothing
    assert "lr: 1" in repr(optimizer)
    assert copy.deepcopy(optimizer).param_groups[0]["lr"] == 1


SCHEDULES = {
    "step": lambda s, o: s.StepLR(o, 3),
    "multistep": lambda s, o: s.MultiStepLR(o, [2, 5, 5, 7]),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.9),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 7, 0.01),
    "lambda": lambda s, o: s.LambdaLR(o, lambda e: 0.9**e),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda e: 0.9),
    "linear": lambda s, o: s.LinearLR(o),
    "constant": lambda s, o: s.ConstantLR(o),
    "polynomial": lambda s, o: s.PolynomialLR(o, 9, 2.0),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2),
    "onecycle": lambda s, o: s.OneCycleLR(o, 0.7, total_steps=26),
    "onecycle-three": lambda s, o: s.OneCycleLR(
        o, 0.7, total_steps=26, three_phase=True, anneal_strategy="linear"
    ),
    "cyclic": lambda s, o: s.CyclicLR(o, 0.1, 0.8, 4, 6),
    "cyclic-halved": lambda s, o: s.CyclicLR(o, 0.1, [0.8], 3, mode="triangular2"),
    "cyclic-range": lambda s, o: s.CyclicLR(
        o, 0.1, 0.8, 3, mode="exp_range", gamma=0.9, cycle_momentum=False
    ),
    "cyclic-own": lambda s, o: s.CyclicLR(
        o, 0.1, 0.8, 3, scale_fn=lambda x: 0.5**x, scale_mode="iterations"
    ),
    "plateau": lambda s, o: s.ReduceLROnPlateau(o, patience=2, cooldown=1),
    "sequential": lambda s, o: s.SequentialLR(
        o,
        [s.LinearLR(o, 0.1, total_iters=4), s.CosineAnnealingLR(o, 10), s.ExponentialLR(o, 0.8)],
        [4, 12],
    ),
    "sequential-constant": lambda s, o: s.SequentialLR(
        o, [s.ExponentialLR(o, 0.8), s.ConstantLR(o, 0.5, 3)], [6]
    ),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o), s.ExponentialLR(o, 0.9)]),
}
METRICS = [3, 2, 1, 1, 1, 1, 0.9999, 1, 1, 1, 1, 0.5]


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_are_pytorchs(torch, name):
    def rates(lib):
        w = lib.nn.Parameter(lib.zeros(1))
        optimizer = lib.optim.SGD([w], lr=0.5, momentum=0.9)
        scheduler = SCHEDULES[name](lib.optim.lr_scheduler, optimizer)
        out = []
        for i in range(25):
            w.grad = lib.ones(1)
            optimizer.step()
            scheduler.step(*([METRICS[i % 12]] if name == "plateau" else []))
            if i == 10:
                state = copy.deepcopy(scheduler.state_dict())
            group = optimizer.param_groups[0]
            out.append((group["lr"], scheduler.get_last_lr()[0], group["momentum"]))
        scheduler.load_state_dict(state)
        return out

    with warnings.catch_warnings():
        # PyTorch's own SequentialLR triggers its warnings.
        warnings.simplefilter("ignore")
        np.testing.assert_allclose(rates(tw), rates(torch), rtol=1e-12)


@pytest.mark.parametrize("least", [0.02, [0.02]])
def test_groups_that_come_after_a_plateau_schedule(torch, least):
    def run(m):
        w = [m.nn.Parameter(m.ones(2)) for _ in range(2)]
        optimizer = m.optim.SGD([w[0]], lr=0.1)
        schedule = m.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, min_lr=least)
        kept = schedule.state_dict()["default_min_lr"]
        schedule.step(1.0)
        optimizer.add_param_group({"params": [w[1]], "lr": 0.5})
        rates = []
        try:
            for _ in range(3):
                schedule.step(1.0)
                rates.append([group["lr"] for group in optimizer.param_groups])
        except RuntimeError:
            rates.append("refused")
        return kept, rates, list(schedule.min_lrs)

    assert run(tw) == run(torch)


def test_a_schedule_before_the_optimizer_is_warned_of():
    w = nn.Parameter(tw.zeros(1))
    optimizer = tw.optim.SGD([w], lr=0.5)
    scheduler = tw.optim.lr_scheduler.StepLR(optimizer, 1)
    with pytest.warns(UserWarning, match=r"before `optimizer.step\(\)`"):
        scheduler.step()
    with pytest.raises(TypeError, match="is not an Optimizer"):
        tw.optim.lr_scheduler.StepLR(w, 1)


def test_verbatim_training_loop_of_introductions(tmp_path):
    import tilewright as torch
    import tilewright.optim as optim
    from tilewright.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    X = torch.randn(96, 4)
    y = (X.sum(dim=1) > 0).long()
    train_loader = DataLoader(TensorDataset(X, y), batch_size=16, shuffle=True)

    class SimpleNet(nn.Module):
        def __init__(self):
            super(SimpleNet, self).__init__()  # noqa: UP008 -- as introductions write it
            self.fc1 = nn.Linear(4, 16)
            self.fc2 = nn.Linear(16, 2)

        def forward(self, x):
            return self.fc2(torch.relu(self.fc1(x)))

    device = torch.device("cpu")
    model = SimpleNet().to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.Adam(model.parameters(), lr=0.02)
    for epoch in range(10):
        model.train()
        running_loss = 0.0
        for inputs, labels in train_loader:
            inputs, labels = inputs.to(device), labels.to(device)
            optimizer.zero_grad()
            outputs = model(inputs)
            loss = criterion(outputs, labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
        if epoch == 0:
            first = running_loss
    assert running_loss < first / 3

    model.eval()
    correct = 0
    with torch.no_grad():
        outputs = model(X)
        _, predicted = torch.max(outputs.data, 1)
        correct += (predicted == y).sum().item()
    assert correct >= 92

    torch.save(model.state_dict(), tmp_path / "model.pth")
    model2 = SimpleNet()
    model2.load_state_dict(torch.load(tmp_path / "model.pth"))
    model2.eval()
    assert torch.equal(model2(X), outputs)


TRAIN = """
import tilewright as tw
import tilewright.nn as nn
if {limit}:
    from tilewright.recording import clock

    clock.limit = {limit}
tw.manual_seed(0)
first, last = nn.Linear(5, 7), nn.Linear(7, 3)
model = nn.Sequential(first, nn.BatchNorm1d(7), nn.Tanh(), nn.Dropout(0.3), last)
optimizer = tw.optim.Adam(model.parameters(), lr=0.1)
x, y = tw.randn(8, 5), tw.tensor([0, 1, 2, 0, 1, 2, 0, 1])
for _ in range(4):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(loss.item())
"""


@pytest.mark.slow
def test_where_an_epoch_ends_changes_nothing(run_python):
    """TW_EAGER=1 runs op by op; a low bound ends epochs amid a backward pass and a step."""

    def losses(limit=0, **env):
        code = TRAIN.format(limit=limit)
        return [float(line) for line in run_python(code, env=env).split()]

    plain = losses()
    np.testing.assert_allclose(losses(TW_EAGER="1"), plain, rtol=1e-4)
    np.testing.assert_allclose(losses(limit=3), plain, rtol=1e-4)
    assert plain[-1] < plain[0]


@pytest.mark.parametrize("given", ["float32", "float64", "bfloat16", "int64"])
@pytest.mark.parametrize("own", ["float32", "float64"])
def test_a_loaded_state_is_kept_or_cast(torch, given, own):
    def run(lib):
        p = lib.nn.Parameter(lib.ones(3, dtype=getattr(lib, own)))
        optimizer = lib.optim.SGD([p], lr=0.1, momentum=0.9)
        saved = optimizer.state_dict()
        moved = lib.ones(3).to(getattr(lib, given))
        saved["state"] = {0: {"momentum_buffer": moved, "parts": [moved]}}
        saved["param_groups"][0]["mine"] = mine = [1]
        optimizer.load_state_dict(saved)
        state = optimizer.state[p]
        moved.add_(1)  # seen by the optimizer if it has the tensor itself
        return (
            str(state["momentum_buffer"].dtype).replace("torch.", ""),
            state["momentum_buffer"].double().tolist(),
            str(state["parts"][0].dtype).replace("torch.", ""),
            state["momentum_buffer"] is moved,
            optimizer.param_groups[0]["mine"] is mine,
        )

    assert run(tw) == run(torch)


def test_options_that_a_loaded_state_lacks_are_gone(torch):
    def run(lib):
        p = lib.nn.Parameter(lib.ones(3))
        named = lib.optim.SGD([("w", p)], lr=0.1)
        named.param_groups[0]["initial_lr"] = 1.0
        saved = lib.optim.SGD([p], lr=0.5).state_dict()
        del saved["param_groups"][0]["nesterov"]
        named.load_state_dict(saved)
        (group,) = named.param_groups
        return sorted(group), group["lr"], group["param_names"], group["nesterov"]

    assert run(tw) == run(torch)


def test_a_rate_of_asgd_that_changes_takes_effect_one_step_later(torch):
    """As AWD-LSTM has it, which scales the rate by each batch's length."""
    seen = []
    for m in (tw, torch):
        w = m.ones(3, requires_grad=True)
        optimizer = m.optim.ASGD([w], lr=0.1, lambd=0.01, t0=2, foreach=False)
        for rate in (0.3, 0.05, 0.2, 0.1, 0.4):
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            (w**2).sum().backward()
            optimizer.step()
            seen.append(w[0].item())
        state = optimizer.state_dict()["state"][0]
        seen += [state["eta"].item(), state["mu"].item(), state["ax"][0].item()]
    assert seen[:8] == pytest.approx(seen[8:], rel=1e-6)


def test_an_optimizer_without_an_init_of_the_base_has_hooks(torch):
    def run(m):
        class Wrapper(m.optim.Optimizer):
            def __init__(self, inner):
                self._optimizer_step_pre_hooks = OrderedDict()
                self._optimizer_step_post_hooks = OrderedDict()
                self.param_groups, self.state, self.defaults = inner.param_groups, {}, {}
                self._patch_step_function()

            def step(self, closure=None):
                return "stepped"

        seen, made = [], Wrapper(m.optim.SGD([m.ones(1)], lr=0.1))
        made.register_step_post_hook(lambda o, args, kwargs: seen.append(o is made))
        return made.step(), seen

    assert run(tw) == run(torch) == ("stepped", [True])


@pytest.mark.torch
def test_first_rates_stay_where_the_rate_is_a_tensor(torch):
    for lib in (tw, torch):
        rate = lib.tensor(0.5)
        optimizer = lib.optim.SGD([lib.ones(1, requires_grad=True)], lr=rate)
        scheduler = lib.optim.lr_scheduler.StepLR(optimizer, 1)
        rate.mul_(0.5)
        assert optimizer.param_groups[0]["initial_lr"].item() == 0.5
        assert [b.item() for b in scheduler.base_lrs] == [0.5]
        assert optimizer.param_groups[0]["lr"].item() == 0.25


RESUMABLE = {
    "multiplicative": lambda s, o, e: s.MultiplicativeLR(o, lambda n: 0.9, last_epoch=e),
    "step": lambda s, o, e: s.StepLR(o, 2, 0.5, last_epoch=e),
    "constant": lambda s, o, e: s.ConstantLR(o, 0.5, 4, last_epoch=e),
    "linear": lambda s, o, e: s.LinearLR(o, 0.3, 1.0, 6, last_epoch=e),
    "exponential": lambda s, o, e: s.ExponentialLR(o, 0.9, last_epoch=e),
    "polynomial": lambda s, o, e: s.PolynomialLR(o, 6, 2.0, last_epoch=e),
    "cosine": lambda s, o, e: s.CosineAnnealingLR(o, 6, 0.1, last_epoch=e),
    "restarts": lambda s, o, e: s.CosineAnnealingWarmRestarts(o, 3, 2, 0.1, last_epoch=e),
}


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step")
@pytest.mark.parametrize("name", RESUMABLE)
@pytest.mark.parametrize("course", ["resumed", "first", "last", "chained"])
def test_courses_of_schedules(torch, name, course):
    def rates(lib):
        schedules, make = lib.optim.lr_scheduler, RESUMABLE[name]
        optimizer = lib.optim.SGD([lib.ones(1, requires_grad=True)], lr=1.0)
        one = make(schedules, optimizer, -1)
        other = schedules.ConstantLR(optimizer, 0.5, 2)
        if course == "first":
            one = schedules.SequentialLR(optimizer, [one, other], [4])
        elif course == "last":
            one = schedules.SequentialLR(optimizer, [other, one], [3])
        elif course == "chained":
            last = schedules.ConstantLR(optimizer, 0.5, 5)
            chained = schedules.ChainedScheduler([one, other])
            one = schedules.SequentialLR(optimizer, [chained, last], [4])
        found = []
        for i in range(8):
            if course == "resumed" and i == 4:
                one = make(schedules, optimizer, one.last_epoch)
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            one.step()
        return found

    assert rates(tw) == pytest.approx(rates(torch))
