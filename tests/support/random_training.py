"""Random training scripts as text: models and optimizers, detached values carried to later steps,
writes through `.data`, views and `no_grad`, reads at random moments.

    text = script(random.Random(7))

All activations are 4 x 3 and all weights 3 x 3, so any line may follow any other. `repaired`
removes lines that PyTorch refuses, so the remaining script must run.
"""

from __future__ import annotations

import random
import re
import traceback
from collections.abc import Callable
from typing import Any

from program_runs import run
from programs import Program, raised

HEAD, LOOP = "def script(torch, draw):\n", "    for step in range(100):\n"
Line = tuple[str, bool]
"""A line, and whether it is in the loop."""


class Script:
    """The lines of a script, and the names that further lines may use."""

    def __init__(self, choose: random.Random):
        self.choose = choose
        self.lines: list[Line] = []
        self.weights: list[str] = []
        self.models: list[str] = []
        self.optimizers: list[str] = []
        self.carried: list[str] = []
        self.values: list[str] = []
        self.losses: list[str] = []
        self.tracked: set[str] = set()  # values that depend on weights
        self.count = 0

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def setup(self, text: str) -> None:
        self.lines.append((text, False))

    def add(self, text: str) -> None:
        """Add a line of a step. Sometimes it runs in every second step only."""
        if self.choose.random() < 0.06 and not re.match(r"\w+ = |with |for |\(", text):
            text = f"if step % 2 == {self.choose.randrange(2)}: {text}"
        self.lines.append((text, True))

    def pick(self, names: list[str]) -> str:
        return self.choose.choice(names[-5:] if self.choose.random() < 0.6 else names)

    def value(self, text: str) -> str:
        name = self.name("h")
        self.add(f"{name} = {text}")
        self.values.append(name)
        seen = re.sub(r"\w+\.(data\b|(clone\(\)\.)?detach\(\)(?!\.requires))", "", text)
        names = set(re.findall(r"\w+", seen))
        if "requires_grad_" in names or names & {*self.weights, *self.models, *self.tracked}:
            self.tracked.add(name)
        return name

    # ---- before the loop ---------------------------------------------------------------------

    def begin(self) -> None:
        c = self.choose
        for _ in range(c.randint(1, 2)):
            self.weights.append(name := self.name("w"))
            self.setup(f"{name} = draw(3, 3, requires_grad=True)")
        for _ in range(c.randint(1, 2)):
            self.models.append(name := self.name("m"))
            kind = c.choice(
                (
                    "torch.nn.Linear(3, 3)",
                    "torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh())",
                    "torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.LayerNorm(3))",
                    "torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False),"
                    " torch.nn.BatchNorm1d(3), torch.nn.ReLU(inplace=True))",
                )
            )
            self.setup(f"{name} = draw.into({kind})")
        tied = len(self.models) == 2 and c.random() < 0.2
        if tied:
            self.setup(f"{self.models[1]}[0].weight = {self.models[0]}[0].weight")
        for _ in range(c.randint(0, 2)):
            self.optimizers.append(name := self.name("o"))
            held = c.sample(self.models, c.randint(1, len(self.models)))
            params = ", ".join([f"*{m}.parameters()" for m in held] + c.sample(self.weights, 1))
            if len(held) == 2 and tied:  # each parameter once
                params = f"*dict.fromkeys([{params}])"
            kind = c.choice(
                ("SGD([{}], lr=0.1)", "SGD([{}], lr=0.05, momentum=0.9)", "RMSprop([{}], lr=0.01)")
            )
            self.setup(f"{name} = torch.optim.{kind.format(params)}")
        for _ in range(c.randint(0, 2)):
            self.carried.append(name := self.name("c"))
            self.setup(f"{name} = {c.choice(('draw(4, 3)', 'torch.zeros(4, 3)'))}")
        self.setup("total, kept = 0.0, []")
        self.values += self.carried

    # ---- steps -------------------------------------------------------------------------------

    def data(self) -> None:
        self.value("draw(4, 3)")

    def compute(self) -> None:
        a, b, w, m = (self.pick(n) for n in (self.values, self.values, self.weights, self.models))
        forms = (
            "{a}.tanh()", "{a}.sin()", "torch.relu({a})", "{a} + {b}", "{a} * {b}", "{a} - 0.5",
            "{a} @ {w}", "({a} @ {w}).tanh()", "{m}({a})", "{m}({a})", "{m}({a} + {b})",
            "torch.softmax({a}, -1)", "torch.where({a} > 0, {a}, {b} * 0.1)", "{a} * {b}.detach()",
            "torch.cat([{a}[:2], {b}[2:]])", "{a}.flip(0)", "{a}.roll(1, 0)", "{a}.clamp(-1, 1)",
            "torch.stack([{a}, {b}]).mean(0)", "{a} / ({b}.abs() + 1)", "{a}.exp().clamp(max=5)",
            "torch.nn.functional.leaky_relu({a}, 0.1)", "{a}.norm(dim=1, keepdim=True) * {b}",
        )  # fmt: skip
        self.value(self.choose.choice(forms).format(a=a, b=b, w=w, m=m))

    def alias(self) -> None:
        a = self.pick(self.values)
        forms = (
            "{a}.detach()", "{a}.data", "{a}.clone()", "{a}.detach().clone()", "{a}.view(4, 3)",
            "{a}.detach().requires_grad_()", "{a}.clone().detach().requires_grad_(True)",
            "{a}.t().t()", "{a}[torch.arange(4)]", "{a}.reshape(12).view(4, 3)",
        )  # fmt: skip
        self.value(self.choose.choice(forms).format(a=a))

    def write(self) -> None:
        a, b = self.pick(self.values), self.pick(self.values)
        forms = (
            "{a}.mul_(0.5)", "{a}.add_({b})", "{a}[0] = 0.5", "{a}[1:] *= 0.5", "{a}[:, 1].zero_()",
            "{a}.data.mul_(0.9)", "{a}.data[1] = 0.1", "{a}.detach().add_(0.1)", "{a}.relu_()",
            "torch.nn.functional.leaky_relu({a}, 0.2, inplace=True)", "{a}.copy_({b})",
            "{a}.tanh_()", "{a}.view(-1)[::2] += 0.25", "{a}.t()[0].sub_(0.5)",
        )  # fmt: skip
        text = self.choose.choice(forms).format(a=a, b=b)
        if self.choose.random() < 0.25:
            text = f"with torch.no_grad(): {text}"
        self.add(text)

    def loss(self) -> None:
        if not self.tracked:
            self.value(f"{self.pick(self.models)}({self.pick(self.values)})")
        tracked = [v for v in self.values if v in self.tracked]
        a, b = self.pick(tracked), self.pick(self.values)
        name = self.name("l")
        forms = (
            "{a}.pow(2).mean()", "{a}.sum() * 0.1", "({a} - {b}).pow(2).mean()",
            "torch.nn.functional.cross_entropy({a}, torch.tensor([0, 1, 2, 1]))",
            "({a} * {b}.detach()).mean()", "torch.nn.functional.smooth_l1_loss({a}, {b}.detach())",
        )  # fmt: skip
        self.add(f"{name} = {self.choose.choice(forms).format(a=a, b=b)}")
        self.losses.append(name)

    def backward(self) -> None:
        loss = self.losses[-1] if self.choose.random() < 0.7 else self.pick(self.losses)
        form = self.choose.random()
        if form < 0.55:
            self.add(f"{loss}.backward()")
        elif form < 0.8:
            self.add(f"{loss}.backward(retain_graph=True)")
        elif form < 0.9:
            name, w = self.name("g"), self.pick(self.weights)
            self.add(f"({name},) = torch.autograd.grad({loss}, [{w}], retain_graph=True)")
        else:
            name, w, other = self.name("g"), self.pick(self.weights), self.name("l")
            self.add(f"({name},) = torch.autograd.grad({loss}, [{w}], create_graph=True)")
            self.add(f"{other} = {name}.pow(2).sum() + {loss}")
            self.losses.append(other)

    def update(self) -> None:
        w, m = self.pick(self.weights), self.pick(self.models)
        forms = [
            "with torch.no_grad(): {w} -= 0.1 * {w}.grad",
            "{w}.data -= 0.1 * {w}.grad",
            "{w}.data.add_({w}.grad, alpha=-0.1)",
            "{w}.data = {w}.data - 0.1 * {w}.grad.data",
            "for p in {m}.parameters(): p.data -= 0.05 * p.grad",
            "for p in {m}.parameters(): p.data.add_(p.grad.data, alpha=-0.05)",
            "torch.nn.utils.clip_grad_norm_({m}.parameters(), 0.5)",
            "torch.nn.utils.clip_grad_norm_([{w}], 0.5)",
        ]
        if self.optimizers and self.choose.random() < 0.6:
            forms = [f"{self.pick(self.optimizers)}.step()"]
        self.add(self.choose.choice(forms).format(w=w, m=m))

    def clear(self) -> None:
        w, m = self.pick(self.weights), self.pick(self.models)
        forms = [
            "{w}.grad = None", "{w}.grad.zero_()", "{m}.zero_grad()",
            "{m}.zero_grad(set_to_none=False)", "{w}.grad.data.zero_()", "{w}.grad.mul_(0.5)",
        ]  # fmt: skip
        if self.optimizers and self.choose.random() < 0.6:
            flag = self.choose.choice(("", "set_to_none=False"))
            forms = [f"{self.pick(self.optimizers)}.zero_grad({flag})"]
        self.add(self.choose.choice(forms).format(w=w, m=m))

    def read(self) -> None:
        loss = self.pick(self.losses) if self.losses else "total"
        forms = (
            "float({l})", "kept.append({a}.detach())", "kept.append({l})", "total = total + {l}",
            "total += float({l})", "{a}.tolist()", "bool(({a} > 0).any())", "str({a})",
            "{a}.detach().numpy().sum()", "{w}.grad.sum().item()", "{w}.tolist()",
            "del kept[:-2]", "{a}.sum().item()",
        )  # fmt: skip
        a, w = self.pick(self.values), self.pick(self.weights)
        self.add(self.choose.choice(forms).format(l=loss, a=a, w=w))

    def mode(self) -> None:
        w, m, a = self.pick(self.weights), self.pick(self.models), self.pick(self.values)
        flag = self.choose.choice(("step % 2 == 0", "False", "True"))
        forms = (
            "{w}.requires_grad_({f})", "{m}.requires_grad_({f})", "{m}.train({f})",
            "{a}.register_hook(lambda g: g * 0.5)", "{a}.retain_grad()", "{a}.detach_()",
            "raised(lambda: {m}({a}.t()))", "raised(lambda: {a}.backward())", "{m}.eval()",
            "kept.append(copy.deepcopy({m})({a}.detach()))", "{m} = copy.deepcopy({m})",
            "{m}.load_state_dict({m}.state_dict())",
        )  # fmt: skip
        self.add(self.choose.choice(forms).format(w=w, m=m, a=a, f=flag))

    def carry(self) -> None:
        if self.carried:
            a, name = self.pick(self.values), self.choose.choice(self.carried)
            forms = (
                "{a}.detach()", "{a}.data", "0.9 * {c}.detach() + 0.1 * {a}.detach()", "{a}",
                "{a}.detach().clone()", "{a}.clone().detach_()",
            )  # fmt: skip
            self.add(f"{name} = {self.choose.choice(forms).format(a=a, c=name)}")

    def end(self) -> None:
        shown = [*self.weights, *self.models, *self.carried, *self.optimizers[:1]]
        shown += self.choose.sample(self.values, min(3, len(self.values)))
        shown += self.losses[-2:]
        self.lines.append((f"yield [{', '.join(dict.fromkeys(shown))}, total]", True))


FORWARD = (
    [Script.compute] * 9 + [Script.data] * 2 + [Script.alias] * 3 + [Script.write, Script.read]
    + [Script.loss, Script.mode]
)  # fmt: skip
BACK = (
    [Script.update] * 4 + [Script.clear] * 3 + [Script.read] * 2 + [Script.backward, Script.write]
    + [Script.carry]
)  # fmt: skip


def text_of(lines: list[Line]) -> str:
    before = "".join(f"    {t}\n" for t, inside in lines if not inside)
    return HEAD + before + LOOP + "".join(f"        {t}\n" for t, inside in lines if inside)


def program_of(lines: list[Line]) -> Program:
    import copy

    names: dict[str, Any] = {"raised": raised, "copy": copy}
    exec(compile(text_of(lines), "<script>", "exec"), names)
    return Program("script", names["script"])


def script(choose: random.Random) -> list[Line]:
    s = Script(choose)
    s.begin()
    for _ in range(choose.randint(1, 3)):
        s.data()
        for _ in range(choose.randint(2, 7)):
            choose.choice(FORWARD)(s)
        s.loss()
        if choose.random() < 0.2:
            s.read()
        s.backward()
        for _ in range(choose.randint(1, 5)):
            choose.choice(BACK)(s)
    s.carry()
    s.end()
    return s.lines


def repaired(lines: list[Line], torch: Any, steps: int) -> list[Line]:
    """The script without the lines that PyTorch refuses in one of the first steps, and without
    writes through `.data` that change values for backward."""
    while True:
        at = refused(lines, torch, steps)
        if at is None:
            return lines
        if lines[at][0].startswith("yield"):  # one of the names is gone
            lines = [*lines[:at], (_without_missing(lines, torch), True)]
        else:
            lines = lines[:at] + lines[at + 1 :]


def behind_no_back(lines: list[Line]) -> list[Line]:
    """The script with writes that autograd sees in the place of writes through `.data`.

    Where PyTorch refuses the former, it silently computes from overwritten values with the latter.
    tilewright doesn't.
    """
    out = []
    for text, inside in lines:
        text = re.sub(r"(\w+)\.data -= (.*)", r"\1.detach().sub_(\2)", text)
        text = re.sub(r"(\w+)\.data = (.*)", r"\1.detach().copy_(\2)", text)
        out.append((re.sub(r"\.data\b", ".detach()", text), inside))
    return out


def refused(lines: list[Line], torch: Any, steps: int) -> int | None:
    """The number of the first line that PyTorch refuses, or None."""
    found = run(torch, program_of(behind_no_back(lines)), steps)
    if not found or not isinstance(found[-1], tuple) or found[-1][0] != "fails":
        return None
    numbers = re.findall(r'"<script>", line (\d+)', found[-1][2])
    assert numbers, found[-1][2]
    number = int(numbers[-1] if "lambda" not in found[-1][2] else numbers[0]) - 2
    before = sum(not inside for _, inside in lines)
    return number if number < before else number - 1


def _without_missing(lines: list[Line], torch: Any) -> str:
    names = re.findall(r"\w+", lines[-1][0])[1:]
    made = {n for text, _ in lines[:-1] for n in re.findall(r"^(\w+) = ", text)} | {"total"}
    kept = [n for n in dict.fromkeys(names) if n in made]
    if len(kept) == len(names):  # a name that only some steps make
        kept = kept[1:]
    return f"yield [{', '.join(kept)}]"


def smallest(lines: list[Line], fails: Callable[[list[Line]], bool]) -> list[Line]:
    """A shorter script that fails too, and that shows fewer values."""
    for name in re.findall(r"\w+", lines[-1][0])[1:]:
        shown = re.sub(rf"\b{name}\b(, )?", "", lines[-1][0])
        fewer = [*lines[:-1], (shown, True)]
        lines = fewer if fails(fewer) else lines
    done = False
    while not done:
        done = True
        for i in reversed(range(len(lines) - 1)):
            fewer = lines[:i] + lines[i + 1 :]
            if fails(fewer):
                lines, done = fewer, False
    return lines


def describe(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()
