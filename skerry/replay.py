"""Which envelopes were seen: one sliding window of counters a sender, of its newest session."""

from __future__ import annotations

WINDOW = 1024


class _Window:
    """The highest counter of one session, and a bit for each of the `size` counters up to it."""

    __slots__ = ("bits", "highest", "session")

    def __init__(self, session: int) -> None:
        self.session = session
        self.highest = 0
        self.bits = 0


class ReplayWindows:
    """Admits each (sender, session, counter) once. Sessions of a sender only grow."""

    def __init__(self, size: int = WINDOW) -> None:
        """size: how far behind the highest counter an unseen one is still admitted."""
        self._size = size
        self._mask = (1 << size) - 1
        self._windows: dict[str, _Window] = {}

    def admit(self, source: str, session: int, counter: int, *, ordered: bool = True) -> str:
        """Return "" and remember the counter, or why not: `old_session` or `replayed`.

        ordered: False compares the session alone and remembers nothing (a will, retained messages).
        Call it only for a sender whose signature was checked, or a forger could close the window.
        """
        window = self._windows.get(source)
        if window is not None and session < window.session:
            return "old_session"
        if not ordered:
            return ""
        if window is None or session > window.session:
            window = self._windows[source] = _Window(session)
        return self._admit(window, counter)

    def remember(self, source: str, session: int, counter: int = 0) -> None:
        """Refuse sessions below this one, and in it every counter up to this one.

        So what was heard is kept over the owner's restart, and a new beginning ends what came before it.
        """
        window = self._windows.get(source)
        if window is None or session > window.session:
            window = self._windows[source] = _Window(session)
        if session == window.session and counter:
            ahead = max(0, counter - window.highest)
            window.bits = (window.bits << min(ahead, self._size)) & self._mask
            window.highest += ahead
            seen_from = min(window.highest - counter, self._size)
            window.bits |= self._mask & ~((1 << seen_from) - 1)

    def forget(self, source: str) -> None:
        """Drop what is known of a sender that is no longer enrolled, or enrolled anew."""
        self._windows.pop(source, None)

    def _admit(self, window: _Window, counter: int) -> str:
        ahead = counter - window.highest
        if ahead > 0:
            window.bits = (window.bits << min(ahead, self._size)) & self._mask | 1
            window.highest = counter
            return ""
        bit = 1 << -ahead
        if counter < 1 or -ahead >= self._size or window.bits & bit:
            return "replayed"
        window.bits |= bit
        return ""
