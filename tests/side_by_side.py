# SPDX-License-Identifier: Apache-2.0
"""Functions that run at once, each in a thread of its own; what goes wrong in one of them fails the test."""

import threading

# A thread that has not come back after so many seconds hangs.
HANGS = 300


def in_threads(*functions):
    """Run the functions at once; the first error of any is raised here, whatever its class."""
    errors = []

    def guarded(function):
        try:
            function()
        except BaseException as error:
            errors.append(error)

    # Daemons: one that hangs does not keep the process from ending.
    threads = [threading.Thread(target=guarded, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGS)
        assert not thread.is_alive(), "a thread does not come back"
    if errors:
        raise errors[0]
