# SPDX-License-Identifier: Apache-2.0
"""The ``collage`` command: hand over to the Go program, telling it which Python to come back to.

What needs TVM's compiler the Go program runs as ``$COLLAGE_PYTHON -m collage.host``; what does not, it does
by itself, without Python in the process.
"""

import os
import sys

from collage.library import binary_path


def main():
    """Replace this process by collage/bin/collage with the same arguments."""
    binary = binary_path()
    if not os.access(binary, os.X_OK):
        print(
            f"collage: error: the program {binary} is missing: build it (make build in the source tree, or "
            "pip install .), or name it in COLLAGE_BINARY",
            file=sys.stderr,
        )
        return 2
    os.environ["COLLAGE_PYTHON"] = sys.executable
    sys.stdout.flush()
    os.execv(binary, ["collage", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
