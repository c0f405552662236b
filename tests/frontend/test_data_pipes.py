"""torch.utils.data.datapipes beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw

pytestmark = pytest.mark.filterwarnings("ignore:(Lambda|Local) function is not supported by pickle")


def other(of: Any) -> Any:
    """A second pipe: in PyTorch a pipe has one pass at a time."""
    return of.utils.data.datapipes.iter.IterableWrapper(range(11))


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "map": lambda p, of: p.map(lambda x: x * 2),
    "filter": lambda p, of: p.filter(lambda x: x % 3 == 0),
    "batch": lambda p, of: p.batch(4),
    "whole batches": lambda p, of: p.batch(4, drop_last=True),
    "batches of batches": lambda p, of: p.batch(2).batch(2),
    "unbatched": lambda p, of: p.batch(2).batch(2).unbatch(2),
    "unbatched wholly": lambda p, of: p.batch(2).batch(2).unbatch(-1),
    "unbatched once": lambda p, of: p.batch(2).batch(2).unbatch(),
    "joined": lambda p, of: p.concat(p.map(lambda x: -x)),
    "zipped": lambda p, of: p.zip(other(of).map(lambda x: -x).batch(2)),
    "in turn": lambda p, of: p.mux(other(of).map(lambda x: -x), other(of).batch(3)),
    "columns": lambda p, of: p.map(lambda x: (x, x + 1, x + 2)).map(lambda a: a * 10, 1),
    "two columns": lambda p, of: p.map(lambda x: (x, x + 1, x + 2)).map(lambda a, b: a * b, [0, 2]),
    "a new column": lambda p, of: p.map(lambda x: [x, x + 1]).map(lambda a: -a, 0, -1),
    "keys": lambda p, of: p.map(lambda x: {"a": x}).map(lambda a: -a, "a", "b"),
    "filtered columns": lambda p, of: p.map(lambda x: (x, -x)).filter(lambda a: a < -4, 1),
    "shuffled off": lambda p, of: p.shuffle().set_shuffle(False),
    "shuffled": lambda p, of: p.shuffle(buffer_size=4).set_seed(5),
}


@pytest.mark.parametrize("name", CALLS)
def test_pipes_of_an_iterable(torch: Any, name: str) -> None:
    found = []
    for of in (tw, torch):
        pipe = of.utils.data.datapipes.iter.IterableWrapper(range(11))
        made = CALLS[name](pipe, of)
        try:
            size: Any = len(made)
        except TypeError:
            size = TypeError
        found.append((list(made), size))
        if name != "shuffled":
            assert list(made) == found[-1][0]  # a second pass
    assert found[0] == found[1]


def test_pipes_of_a_sequence(torch: Any) -> None:
    found = []
    for of in (tw, torch):
        pipe = of.utils.data.datapipes.map.SequenceWrapper(list(range(7)))
        made = [
            pipe.map(lambda x: x * 2),
            pipe.batch(3),
            pipe.batch(3, drop_last=True),
            pipe.concat(pipe.map(lambda x: -x)),
            pipe.zip(pipe.map(lambda x: -x)),
        ]
        found.append([[each[i] for i in range(len(each))] for each in made])
        for each in made[1:4]:
            with pytest.raises(IndexError):
                each[len(each)]
    assert found[0] == found[1]


def test_pipes_of_users_and_tensors(torch: Any) -> None:
    found = []
    for of in (tw, torch):
        data = of.utils.data

        class Evens(data.IterDataPipe):  # type: ignore[name-defined, misc]
            def __init__(self, source: Any):
                self.source = source

            def __iter__(self) -> Any:
                return (x for x in self.source if x % 2 == 0)

        data.IterDataPipe.register_datapipe_as_function("evens_of_a_test", Evens)
        try:
            pipe = data.datapipes.iter.IterableWrapper(range(9)).evens_of_a_test()
            with pytest.raises(Exception, match="already taken"):
                data.functional_datapipe("evens_of_a_test")(Evens)
            found.append([x.tolist() for x in pipe.batch(2).collate()])
            if of is tw:  # PyTorch's loader pickles a pipe to find the others in it
                loader = data.DataLoader(pipe, batch_size=3)
                assert [x.tolist() for x in loader] == [[0, 2, 4], [6, 8]]
        finally:
            del data.IterDataPipe.functions["evens_of_a_test"]
        with pytest.raises(AttributeError):
            _ = pipe.nothing
    assert found[0] == found[1]
