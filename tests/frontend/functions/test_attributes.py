"""Attributes of modules, parameters and optimizers, beside PyTorch."""

# ruff: noqa: E501  (a case is a line)

from __future__ import annotations

import copy
import pickle
from collections import defaultdict
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from expressions import assert_alike

import tilewright as tw
from tilewright import nn

SOURCES = """
m=nn.Sequential(nn.Linear(2,3)); m.__getattr__("0").weight.shape
m=nn.Linear(2,3); m.__getattr__("weight") is m.weight
m=nn.Linear(2,3); m.__getattr__("bias") is m.bias
m=nn.Linear(2,3); m.__getattr__("training")
m=nn.Linear(2,3); m.__getattr__("forward")
m=nn.Linear(2,3); m.__getattr__("nope")
m=nn.BatchNorm1d(3); m.__getattr__("running_mean") is m.running_mean
m=nn.BatchNorm1d(3); nn.Module.__getattr__(m,"running_mean").shape
m=nn.Linear(2,3); type(m._forward_hooks).__name__, len(m._forward_hooks)
m=nn.Linear(2,3); [len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)]
m=nn.Linear(2,3); [len(m._state_dict_hooks), len(m._load_state_dict_pre_hooks)]
m=nn.Linear(2,3); [len(m._forward_hooks_with_kwargs), len(m._forward_hooks_always_called)]
m=nn.Linear(2,3); m._is_full_backward_hook
m=nn.Linear(2,3); h=m.register_full_backward_hook(lambda *a:None); m._is_full_backward_hook, len(m._backward_hooks)
m=nn.Linear(2,3); h=m.register_forward_hook(lambda *a:None); len(m._forward_hooks), list(m._forward_hooks)==[h.id]
f=lambda m,i,o:o+1; m=nn.Linear(2,3); h=m.register_forward_hook(f); m._forward_hooks[h.id] is f
f=lambda m,i,o:o*0; m=nn.Linear(2,3); h=m.register_forward_hook(f); m._forward_hooks.clear(); bool((m(torch.ones(2))!=0).any())
f=lambda m,i:(i[0]*0,); m=nn.Linear(2,3,bias=False); m._forward_pre_hooks[7]=f; m(torch.ones(2))
L=[]; m=nn.Linear(2,3); h=m.register_forward_hook(lambda *a:L.append(1), always_call=True); h.remove(); m(torch.ones(2)) is None; L
L=[]; m=nn.Linear(2,3); m.register_forward_hook(lambda *a:L.append(1)); c=copy.deepcopy(m); c(torch.ones(2)); (L, len(c._forward_hooks))
m=nn.Linear(2,3); list(m._parameters), list(m._buffers), list(m._modules)
m=nn.Linear(2,3); m._parameters["weight"] is m.weight
m=nn.Linear(2,3); w=m._parameters.pop("weight"); hasattr(m,"weight")
m=nn.Linear(2,3); w=m._parameters.pop("weight"); m.weight=torch.ones(3,2); m(torch.ones(2)).shape
m=nn.Linear(2,3); del m._parameters["weight"]; m.weight=3; m.weight
p=nn.Parameter(torch.ones(2)); p.__dict__
p=nn.Parameter(torch.ones(2)); vars(p)
p=nn.Parameter(torch.ones(2)); p.foo=3; p.__dict__
p=nn.Parameter(torch.ones(2)); p._foo=3; p.__dict__
p=nn.Parameter(torch.ones(2)); p.__dict__["x"]=4; p.x
p=nn.Parameter(torch.ones(2)); p.__dict__.update(a=1,b=2); p.a+p.b
p=nn.Parameter(torch.ones(2)); p.a=1; del p.__dict__["a"]; hasattr(p,"a")
p=nn.Parameter(torch.ones(2)); p.a=1; del p.a; p.__dict__
p=nn.Parameter(torch.ones(2)); (p*2).sum().backward(); p.__dict__
p=nn.Parameter(torch.ones(2)); p.register_hook(lambda g:g); p.__dict__
t=torch.ones(2); t.__dict__
t=torch.ones(2)*2; t+1; t.__dict__
t=torch.ones(2); t.foo=[1]; c=copy.copy(t); c.__dict__
t=torch.ones(2); t.foo=[1]; c=copy.deepcopy(t); (c.__dict__, c.foo is t.foo)
t=torch.ones(2); t._foo=[1]; c=copy.deepcopy(t); c.__dict__
p=nn.Parameter(torch.ones(2)); p.foo=[1]; c=copy.deepcopy(p); c.__dict__
p=nn.Parameter(torch.ones(2)); p.foo=[1]; c=copy.copy(p); c.__dict__
t=torch.ones(2); t.foo=1; c=pickle.loads(pickle.dumps(t)); c.__dict__
p=nn.Parameter(torch.ones(2)); p.foo=1; c=pickle.loads(pickle.dumps(p)); c.__dict__, type(c).__name__, c.requires_grad
m=nn.Linear(2,3); m.weight.tag="a"; c=copy.deepcopy(m); hasattr(c.weight,"tag")
t=torch.ones(2); t.__dict__={"a":1}; t.a
t=torch.ones(2); t.__dict__={"a":1}; t+1
t=torch.ones(2); "foo" in t.__dict__, "_node" in t.__dict__
t=torch.ones(2); t.foo=1; x=t.detach(); hasattr(x,"foo")
m=nn.Linear(2,3); m.always_call=1; L=[]; h=m.register_forward_hook(lambda *a:L.append(1), always_call=True); len(m._forward_hooks_always_called)
m=nn.Linear(2,3); h=m.register_forward_pre_hook(lambda m,a,k:None, with_kwargs=True); len(m._forward_pre_hooks_with_kwargs), h.remove(), len(m._forward_pre_hooks_with_kwargs), len(m._forward_pre_hooks)
import weakref; weakref.ref(nn.Parameter(torch.ones(2))) is None
t=torch.ones(2); dir(t).count("shape")
t=torch.ones(2); t.zzz=1; "zzz" in dir(t)
w=torch.ones(2,requires_grad=True); p=torch.optim.SGD([w],lr=.1); len(p._optimizer_step_pre_hooks), len(p._optimizer_step_post_hooks)
w=torch.ones(2,requires_grad=True); p=torch.optim.SGD([w],lr=.1); L=[]; p.register_state_dict_pre_hook(lambda o:L.append(1)); p.state_dict(); L
w=torch.ones(2,requires_grad=True); p=torch.optim.SGD([w],lr=.1); p.register_state_dict_post_hook(lambda o,s:{"x":1}); p.state_dict()
w=torch.ones(2,requires_grad=True); p=torch.optim.SGD([w],lr=.1); L=[]; p.register_load_state_dict_pre_hook(lambda o,s:L.append(2)); p.register_load_state_dict_post_hook(lambda o:L.append(3)); p.load_state_dict(p.state_dict()); L
p=torch.optim.SGD([torch.ones(2,requires_grad=True)],lr=.1); sorted(p.__getstate__())
w=torch.ones(2,requires_grad=True); p=torch.optim.Adam([w]); s=torch.optim.lr_scheduler.StepLR(p,1); q=pickle.loads(pickle.dumps(p)); q.param_groups[0]["lr"]
w=torch.ones(2,requires_grad=True); p=torch.optim.Adam([w]); s=torch.optim.lr_scheduler.StepLR(p,1); q=copy.deepcopy(p); q.param_groups[0]["lr"]
w=torch.ones(2,requires_grad=True); p=torch.optim.Adam([w]); s=torch.optim.lr_scheduler.StepLR(p,1); q=copy.deepcopy((p,s)); q[1].optimizer is q[0]
w=torch.ones(2,requires_grad=True); p=torch.optim.Adam([w]); w.sum().backward(); p.step(); q=copy.deepcopy(p); q.step(); q.param_groups[0]["params"][0]
""".strip().splitlines()


@pytest.mark.parametrize("source", SOURCES)
def test_as_in_pytorch(torch: ModuleType, source: str) -> None:
    assert_alike(torch, tw, source)


@pytest.mark.parametrize("as_attribute", [False, True])
def test_a_hook_that_is_put_among_the_others_is_called(as_attribute: bool) -> None:
    layer = nn.Linear(2, 3)
    if as_attribute:
        layer._forward_hooks = {}
    layer._forward_hooks[7] = lambda module, args, output: output * 0 + 5
    layer._forward_pre_hooks[8] = lambda module, args: (args[0] * 2,)
    assert layer(tw.ones(2)).tolist() == [5, 5, 5]
    seen = []
    layer._backward_hooks[9] = lambda module, grads, outputs: seen.append(outputs[0].tolist())
    layer._forward_hooks.clear()
    layer(tw.ones(2, requires_grad=True)).sum().backward()
    assert seen == [[1, 1, 1]]


def test_a_hook_that_is_always_called(torch: ModuleType) -> None:
    for module in (torch, tw):
        seen: list[Any] = []
        layer = module.nn.Linear(2, 3)
        layer.register_forward_hook(lambda m, a, out, s=seen: s.append(out is None))
        layer.register_forward_hook(
            lambda m, a, k, out, s=seen: s.append((k, out is None)),
            always_call=True,
            with_kwargs=True,
        )
        with pytest.raises(RuntimeError):
            layer(input=module.ones(5))
        assert len(seen) == 1 and seen[0][1] is True and list(seen[0][0]) == ["input"]


def test_a_wrapper_finds_what_it_wraps_by_getattr() -> None:
    class Wrapper(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("inner"), name)

    wrapped = Wrapper(nn.Sequential(nn.Linear(2, 3)))
    assert wrapped[0] is wrapped.inner[0] if hasattr(type(wrapped), "__getitem__") else True
    assert wrapped.append is not None and wrapped.__getattr__("inner") is wrapped.inner
    with pytest.raises(AttributeError):
        wrapped.nowhere  # noqa: B018
    again = pickle.loads(pickle.dumps(wrapped.inner))
    assert again.__getattr__("0").weight.tolist() == wrapped.inner[0].weight.tolist()


def _lookahead(module: ModuleType) -> type:
    class Lookahead(module.optim.Optimizer):  # type: ignore[misc, name-defined]
        """Wraps an optimizer without a call of `super().__init__`, as many do."""

        def __init__(self, inner: Any, alpha: float = 0.5, k: int = 2):
            self.inner, self.alpha, self.k = inner, alpha, k
            self.param_groups = inner.param_groups
            self.defaults = inner.defaults
            self.state = defaultdict(dict)
            for group in self.param_groups:
                group["counter"] = 0

        def step(self, closure: Any = None) -> Any:
            loss = self.inner.step(closure)
            for group in self.param_groups:
                group["counter"] += 1
                if group["counter"] % self.k:
                    continue
                for p in group["params"]:
                    state = self.state[p]
                    slow = state.setdefault("slow", p.data.clone())
                    slow += (p.data - slow) * self.alpha
                    p.data.copy_(slow)
            return loss

    return Lookahead


def test_an_optimizer_without_init(torch: ModuleType) -> None:
    found = []
    for module in (torch, tw):
        w = module.tensor([1.0, 2.0, 3.0], requires_grad=True)
        optimizer = _lookahead(module)(module.optim.Adam([w], lr=0.1))
        schedule = module.optim.lr_scheduler.StepLR(optimizer, 2)
        for _ in range(5):
            optimizer.zero_grad()
            (w * w).sum().backward()
            optimizer.step()
            schedule.step()
        assert "Lookahead" in repr(optimizer)
        found.append((w.tolist(), optimizer.param_groups[0]["lr"]))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-5)
    assert found[0][1] == found[1][1]
    # What PyTorch has no attributes for then works too.
    optimizer.load_state_dict(optimizer.state_dict())
    seen: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("pre"))
    handle = optimizer.register_step_post_hook(lambda *_: seen.append("post"))
    optimizer.step()
    handle.remove()
    optimizer.step()
    assert seen == ["pre", "post", "pre"]


def test_the_hooks_of_a_step_that_calls_another_are_called_once() -> None:
    class Twice(tw.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            super().step(closure)
            return super().step(closure)

    w = tw.ones(2, requires_grad=True)
    optimizer = Twice([w], lr=0.5)
    seen: list[int] = []
    optimizer.register_step_post_hook(lambda *_: seen.append(1))
    w.sum().backward()
    optimizer.step()
    assert seen == [1] and w.tolist() == [0, 0]


@pytest.mark.parametrize("again", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_an_optimizer_with_a_schedule_is_copied(again: Any) -> None:
    w = tw.ones(2, requires_grad=True)
    optimizer = tw.optim.Adam([w], lr=0.5)
    tw.optim.lr_scheduler.StepLR(optimizer, 1)
    w.sum().backward()
    optimizer.step()
    made = again(optimizer)
    own = made.param_groups[0]["params"][0]
    assert own is not w and own.tolist() == w.tolist()
    own.grad = tw.ones(2)
    made.step()
    optimizer.step()
    assert own.tolist() == w.tolist()
