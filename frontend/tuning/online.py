"""Tuning beside a running program: TW_TUNE=1, or TW_TUNE=0.1 for the share of its time to use.

A thread searches the kernels of repeated plans, the busiest first, with a worker process that
compiles candidates. During a measurement the program waits between two of its steps, so that
neither slows the other. The thread limits these waits to the share. When nothing is left to search
and something was gained, plans are made anew.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator

from tilewright.runtime import debug, tiers
from tilewright.runtime.plan import Plan
from tilewright.runtime.results import choices, place
from tilewright.runtime.results.database import Database
from tilewright.runtime.tuner import engines
from tilewright.runtime.tuner.session import Session

from ..inspection.explanation import PlanReport
from ..recording import flushing
from .work import Launched, busiest, name_of

SHARE = 0.1
WAIT = 0.5
"""Seconds to wait until the program is between two steps. After that it counts as idle."""
REPEATED = 10
"""Runs of a plan after which its kernels are worth a search."""
IDLE = 0.5
"""Seconds between the thread's looks for new work."""
WORTH = 1.02
"""The least gain for which plans are made anew."""


class Online:
    """The searches beside this program. share: the share of its time for waits on measurements."""

    def __init__(self, share: float):
        self.share = share
        self.waited = 0.0
        self.searched: list[Launched] = []
        self._start = time.monotonic()
        self._last = 0.0  # the program's wait during the last measurement
        self._plans: list[Plan] = []
        self._known: set[str] = set()
        self._wants = False
        self._granted, self._measuring = threading.Event(), threading.Lock()
        self._renew = False
        self._thread = threading.Thread(target=self._search_all, daemon=True, name="tuner")

    def begin(self) -> None:
        """Start to search the kernels of new plans."""
        tiers.on_new, flushing.between = self.add, self.between
        self._thread.start()

    def add(self, new: Plan) -> None:
        """Note a new plan, which may repeat."""
        self._plans.append(new)

    # In the program's thread

    def between(self) -> None:
        """Let a measurement run, as the program is between two steps."""
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

    # In the tuner's thread

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the program between two steps inside the block."""
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
        """The busiest kernel of repeated plans that hasn't been searched."""
        repeated = [(PlanReport(p), p.runs) for p in list(self._plans) if p.runs >= REPEATED]
        for each in busiest(repeated):
            name = name_of(each.kernel)
            if name not in self._known:
                self._known.add(name)
                return each
        return None


def start(setting: str) -> Online | None:
    """Start the searches that TW_TUNE asks for: none for 0, an empty text or pinned schedules.
    ValueError for anything but a switch or a share."""
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
"""The searches of this process, or None."""
