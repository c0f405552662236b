"""Tuning beside a program that runs: TW_TUNE=1, or the share of its time that this may take (0.1).

A thread searches the kernels of plans that repeat, the busiest first, with a worker process that
compiles candidates. While they are measured the program waits, between two of its steps, so that
neither slows the other; the thread keeps this to the share. When there is nothing left to search,
and something was gained, plans are made anew.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator

from tilewright.runtime import debug, plan
from tilewright.runtime.results import choices, place
from tilewright.runtime.results.database import Database
from tilewright.runtime.tuner import engines
from tilewright.runtime.tuner.session import Session

from ..inspection.explanation import PlanReport
from ..recording import flushing
from .work import Launched, busiest, name_of

SHARE = 0.1
WAIT = 0.5
"""Seconds to wait for the program to come between two steps; if it doesn't, it isn't computing."""
REPEATED = 10
"""Runs of a plan from which on its kernels are worth a search."""
IDLE = 0.5
"""Seconds until the thread looks again for something to do."""
WORTH = 1.02
"""The gain from which on plans are made anew."""


class Online:
    """The searches beside this process. share: of its time that it may wait for measurements."""

    def __init__(self, share: float):
        self.share = share
        self.waited = 0.0
        self.searched: list[Launched] = []
        self._start = time.monotonic()
        self._last = 0.0  # what the program waited for the last measurement
        self._plans: list[plan.Plan] = []
        self._known: set[str] = set()
        self._wants = False
        self._granted, self._measuring = threading.Event(), threading.Lock()
        self._renew = False
        self._thread = threading.Thread(target=self._search_all, daemon=True, name="tuner")

    def begin(self) -> None:
        """From now on new plans are searched."""
        plan.on_new, flushing.between = self.add, self.between
        self._thread.start()

    def add(self, new: plan.Plan) -> None:
        """A plan that may come to repeat."""
        self._plans.append(new)

    # In the program's thread

    def between(self) -> None:
        """The program is between two steps."""
        if self._wants:
            start = time.monotonic()
            self._granted.set()
            with self._measuring:
                self._last = time.monotonic() - start
                self.waited += self._last
        if self._renew:
            self._renew = False
            self._plans.clear()
            choices.forget()
            flushing.clear_tables()

    # In the tuner's

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """While the program waits."""
        while self.waited + self._last > self.share * (time.monotonic() - self._start):
            time.sleep(0.01)
        with self._measuring:
            self._granted.clear()
            self._wants = True
            self._granted.wait(WAIT)
            try:
                yield
            finally:
                self._wants = False

    def _search_all(self) -> None:
        gained = False
        while True:
            each = self._next()
            if each is None:
                gained, self._renew = False, self._renew or gained
                time.sleep(IDLE)
                continue
            try:
                with Database() as database:
                    engine = engines.named(each.engine)
                    session = Session(engine, database, "quick", turn=self._turn)
                    gained |= session.tune(each.kernel, each.family).record.gain > WORTH
            except Exception as error:
                if debug.level():
                    print(f"tilewright: not tuned: {error}", file=sys.stderr)
            self.searched.append(each)

    def _next(self) -> Launched | None:
        """The busiest kernel of plans that repeat, of those that weren't searched."""
        repeated = [(PlanReport(p), p.runs) for p in list(self._plans) if p.runs >= REPEATED]
        for each in busiest(repeated):
            name = name_of(each.kernel)
            if name not in self._known:
                self._known.add(name)
                return each
        return None


def start(setting: str) -> Online | None:
    """By TW_TUNE: nothing for 0, an empty text or with schedules pinned. ValueError for what is
    neither a switch nor a share."""
    if setting.lower() in ("", "0", "false", "off") or place.pinned():
        return None
    try:
        share = SHARE if setting.lower() in ("1", "true", "on") else float(setting)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise ValueError(f"TW_TUNE: expected 1, or a share of time such as 0.05, got {setting!r}")
    online = Online(share)
    online.begin()
    return online


running = start(os.environ.get("TW_TUNE", ""))
"""This process's searches."""
