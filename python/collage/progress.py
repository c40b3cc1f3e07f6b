# SPDX-License-Identifier: Apache-2.0
"""How far long work has come, for whoever wants to know: a function of the user's, a bar in a notebook, the log.

def show(progress):
    print(progress.step, progress.done, progress.total)

executable = collage.compile(module, params, progress=show)
"""

import contextlib
import contextvars
import dataclasses
import importlib.util
import itertools
import json
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

from .log import logger


@dataclasses.dataclass(frozen=True)
class Progress:
    """What a progress callback is told: at the beginning of each step, after each piece of it, and at its end."""

    # The step ("measuring candidates"); "" for a note that belongs to none.
    step: str
    # So many pieces are finished of so many; 0 of 0 where they cannot be counted. With ``timed`` the pieces are
    # seconds: of those that the step may take, so many are gone.
    done: int = 0
    total: int = 0
    timed: bool = False
    # What the last piece was, or what is known so far.
    label: str = ""
    # The step is over, with this result ("" where it was broken off).
    finished: bool = False
    result: str = ""
    # A line beside the steps: what was tried and what came of it.
    note: str = ""


# What ``progress=`` takes: whether it is shown, or a function that is told.
Shown = bool | Callable[[Progress], object]

_listeners: dict[str, list[Callable[[Progress], object]]] = {}
_names = itertools.count(1)
# What configurations say of it while a call of this context runs.
_said: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar("collage.progress", default=None)


def said() -> dict[str, Any]:
    """What a configuration for Go says of who is told."""
    return dict(_said.get() or {})


@contextlib.contextmanager
def told(progress: Shown | None) -> Iterator[None]:
    """Go's work in this context tells ``progress``, and the log, of how far it is.

    An exception that the function raises ends the work, and comes out of it.
    """
    bars = None if callable(progress) or not progress else _bars_of_notebook()
    listeners: list[Callable[[Progress], object]] = [one for one in (progress, bars) if callable(one)]
    shown = bool(progress) and not listeners  # by Go, on the standard error
    if not shown and bars is None and logger.isEnabledFor(logging.INFO):
        listeners.append(_log)
    name = str(next(_names)) if listeners else ""
    _listeners[name] = listeners
    token = _said.set({"listener": name, "show_progress": shown})
    try:
        yield
    finally:
        _said.reset(token)
        _listeners.pop(name, None)
        if bars is not None:
            bars.close()


def hear(name: str, text: str) -> None:
    """collage.host.progress: the name of who listens, and a progress.Event of Go's as JSON."""
    event = Progress(**json.loads(str(text)))
    for listener in _listeners.get(str(name), ()):
        listener(event)


def _log(progress: Progress) -> None:
    if progress.note:
        logger.info("%s", progress.note)
    elif progress.finished and progress.result:
        logger.info("%s: %s", progress.step, progress.result)


class _Bars:
    """tqdm's bars, one for each step."""

    def __init__(self, make: Callable[..., Any]):
        self._make = make
        self._bar: Any = None

    def __call__(self, progress: Progress) -> None:
        if progress.note:
            self._make.write(progress.note)  # type: ignore[attr-defined]
            return
        if self._bar is None or self._bar.desc.removesuffix(": ") != progress.step:
            self.close()
            unit = "s" if progress.timed else "it"
            self._bar = self._make(desc=progress.step, total=progress.total or None, unit=unit)
        self._bar.set_postfix_str(progress.result or progress.label, refresh=False)
        self._bar.update(min(progress.done, progress.total) - self._bar.n)
        if progress.finished:
            self.close()

    def close(self) -> None:
        """Leave the last bar as it is."""
        if self._bar is not None:
            self._bar.close()
        self._bar = None


def _bars_of_notebook() -> _Bars | None:
    """Bars, where this is a notebook and tqdm is installed."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is None or importlib.util.find_spec("tqdm") is None:
        return None
    from tqdm.auto import tqdm

    return _Bars(tqdm)
