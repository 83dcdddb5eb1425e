"""An interrupt that waits until the step is done, so that no state is saved, or lost, in the middle of one."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""^C, and what schedulers send before they kill"""


class Interrupts:
    """Whether one has come; looked at between two steps."""

    def __init__(self) -> None:
        self.asked: signal.Signals | None = None


@contextmanager
def deferred_interrupts(launched: bool = False) -> Iterator[Interrupts]:
    """Note SIGINT and SIGTERM within the block and deliver the one that came at its end; a second one acts at once.

    In processes that were `launched`, a second one is nothing new: ^C reaches them from the terminal and from the
    launcher, which kills them after a while by itself.

    Delivered means: to whoever was asked before the block, so that SIGINT becomes a KeyboardInterrupt and SIGTERM ends
    the process. A signal that was ignored stays ignored. Outside the main thread, where Python takes no signals,
    nothing is noted.
    """
    interrupts = Interrupts()
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number in taken:
            signal.signal(number, before[number])

    def note(number: int, frame: FrameType | None) -> None:
        interrupts.asked = signal.Signals(number)
        if not launched:
            restore()

    in_main_thread = threading.current_thread() is threading.main_thread()
    taken = [number for number in SIGNALS if in_main_thread and before[number] not in (signal.SIG_IGN, None)]
    for number in taken:
        signal.signal(number, note)
    try:
        yield interrupts
    finally:
        restore()
    if interrupts.asked is not None:
        signal.raise_signal(interrupts.asked)
