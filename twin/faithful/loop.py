"""An event loop on a virtual clock: it never waits, it is turned. One a process, so that one can die whole.

Owns the order of what runs inside one process. Must not know what runs. Threads do not exist here: what a
shell would give to one is done at once, in the order in which it was asked for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from heapq import heappop, heappush
from typing import Any, TypeVar, TypeVarTuple, Unpack

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class _Callback:
    """One callback to come; what asyncio knows as a handle, without what only a debugger asks for."""

    __slots__ = ("_when", "args", "call", "context", "is_cancelled")

    def __init__(
        self, call: Callable[..., object], args: tuple[Any, ...], context: Context | None, when: float
    ) -> None:
        self.call, self.args, self.context, self._when = call, args, context, when
        self.is_cancelled = False

    def cancel(self) -> None:
        """See asyncio.Handle."""
        self.is_cancelled = True

    def cancelled(self) -> bool:
        """See asyncio.Handle."""
        return self.is_cancelled

    def when(self) -> float:
        """See asyncio.TimerHandle."""
        return self._when


class VirtualLoop(asyncio.AbstractEventLoop):
    """What asyncio's own primitives need of a loop: callbacks now, callbacks later, futures and tasks."""

    def __init__(self, clock_s: Callable[[], float], sooner: Callable[[float], None]) -> None:
        """clock_s: the process's monotonic seconds.  sooner: told of each moment at which it wants a turn."""
        self._clock_s = clock_s
        self._sooner = sooner
        self._ready: deque[_Callback] = deque()
        self._later: list[tuple[float, int, _Callback]] = []
        self._order = 0
        self._turn_s: float | None = None  # the moment of the turn that is being run: time stands still in it
        self._is_closed = False
        self._tasks: list[asyncio.Task[Any]] = []  # in order: how they end must not depend on hashes
        self._most_tasks = 64  # with more, those that are done are let go
        #: What went wrong inside callbacks: the world looks at it after each turn.
        self.broken: list[dict[str, Any]] = []

    def time(self) -> float:
        """Return the process's monotonic seconds."""
        return self._clock_s() if self._turn_s is None else self._turn_s

    def next_at(self) -> float | None:
        """Return when it wants a turn, None when nothing will ever happen by itself."""
        if self._ready:
            return self.time()
        later = self._later
        while later and later[0][2].is_cancelled:
            heappop(later)
        return later[0][0] if later else None

    def turn(self) -> None:
        """Run everything that is due by now, and what that makes due."""
        now = self._turn_s = self._clock_s()
        asyncio._set_running_loop(self)
        ready, later = self._ready, self._later
        try:
            while True:
                while later and later[0][0] <= now:
                    ready.append(heappop(later)[2])
                if not ready:
                    return
                callback = ready.popleft()
                if callback.is_cancelled:
                    continue
                try:
                    if callback.context is None:
                        callback.call(*callback.args)
                    else:
                        callback.context.run(callback.call, *callback.args)
                except Exception as error:
                    self.call_exception_handler({"message": f"{callback.call} failed", "exception": error})
        finally:
            asyncio._set_running_loop(None)
            self._turn_s = None

    def run_inside(self, function: Callable[[], _T]) -> _T:
        """Call a function as if from a callback of this loop."""
        asyncio._set_running_loop(self)
        try:
            return function()
        finally:
            asyncio._set_running_loop(None)

    def close(self) -> None:
        """End the process without a word: nothing of it runs any more."""
        self._is_closed = True
        self._ready.clear()
        self._later.clear()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            if task.done():
                continue
            task._log_destroy_pending = False  # type: ignore[attr-defined] # a killed process reports nothing
            _end(task)

    # --- what asyncio calls ------------------------------------------------------------------------------

    def call_soon(
        self,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Have a callback run in this turn or the next."""
        handle = _Callback(callback, args, context, 0.0)
        if not self._is_closed:
            if self._turn_s is None and not self._ready:
                self._sooner(self._clock_s())
            self._ready.append(handle)
        return handle  # type: ignore[return-value] # it does what a handle does

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Have a callback run after `delay` seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Have a callback run at a moment of `time()`; equal moments keep their order."""
        handle = _Callback(callback, args, context, when)
        if not self._is_closed:
            self._order += 1
            heappush(self._later, (when, self._order, handle))
            if self._turn_s is None and self._later[0][2] is handle:
                self._sooner(when)
        return handle  # type: ignore[return-value]

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, _T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[_T]:
        """Run a coroutine on this loop."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        if len(self._tasks) > self._most_tasks:
            self._tasks = [one for one in self._tasks if not one.done()]
            self._most_tasks = 2 * len(self._tasks) + 64
        self._tasks.append(task)
        return task

    def run_in_executor(
        self, executor: Any, func: Callable[[Unpack[_Ts]], _T], *args: *_Ts
    ) -> asyncio.Future[_T]:
        """Do at once what a shell would give to a thread."""
        future: asyncio.Future[_T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what went wrong for the world."""
        if not self._is_closed:
            self.broken.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """See call_exception_handler."""
        self.call_exception_handler(context)

    def get_debug(self) -> bool:
        """Never: asyncio's own checks read the real clock."""
        return False

    def is_running(self) -> bool:
        """Whether this loop is being turned right now."""
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        """Whether the process is gone."""
        return self._is_closed


def _end(task: asyncio.Task[Any]) -> None:
    """Unwind a coroutine now, not when memory is collected: what it does on its way out reaches nothing."""
    with suppress(RuntimeError):  # one that goes on waiting, or is the one that ends its own process
        task.get_coro().close()
