# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while a search runs that Python called: once ends the search, and the fastest found so far is kept; a
second time, or before there is anything to keep, it is a KeyboardInterrupt.

Python's handlers run wherever TVM or Go asks for them, in the middle of a pass of TVM's, too. An exception there
ends what goes on; a handler that only notes the wish does not.
"""

import signal
import sys
import threading

import tvm


@tvm.register_func("collage.interrupts.watch", override=True)
def watch(end):
    """Have Ctrl-C call ``end``, which says whether the search ends with a result; 0 where that is not ours to do:
    outside of Python's main thread, and where the program has a handler of its own.
    """
    if threading.current_thread() is not threading.main_thread():
        return 0
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return 0

    def handler(number, frame):
        if not int(end()):
            signal.default_int_handler(number, frame)
        print(
            "collage: ending the search; the fastest so far is kept (Ctrl-C again quits)", file=sys.stderr, flush=True
        )

    signal.signal(signal.SIGINT, handler)
    return 1


@tvm.register_func("collage.interrupts.unwatch", override=True)
def unwatch():
    """Ctrl-C is Python's again."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
