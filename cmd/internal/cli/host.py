# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import signal
import sys


def leave(message):
    sys.stderr.write("collage: error: " + message + "\n")
    sys.stderr.flush()
    temporary = os.environ.get("COLLAGE_TEMPORARY")
    if temporary:
        shutil.rmtree(temporary, ignore_errors=True)
    os._exit(2)


# Loading TVM takes seconds. Later the Go side has its own handlers.
interrupts = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
for number in interrupts:
    signal.signal(number, lambda *_: leave("interrupted"))
signal.pthread_sigmask(signal.SIG_UNBLOCK, interrupts)
try:
    from collage import library

    library.load()
    from collage import host
except Exception as error:
    message = str(error).strip() or type(error).__name__
    program = os.environ.get("COLLAGE_RETURN_TO")
    if not program:
        leave("TVM and Collage cannot be loaded: " + message)
    temporary = os.environ.pop("COLLAGE_TEMPORARY")
    shutil.rmtree(temporary, ignore_errors=True)
    os.environ["TMPDIR"] = os.path.dirname(temporary)
    os.execve(program, ["collage", *sys.argv[1:]], {**os.environ, "COLLAGE_HOST_FAILED": message})
sys.exit(host.main(sys.argv[1:]))
