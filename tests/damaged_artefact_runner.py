# SPDX-License-Identifier: Apache-2.0
"""Loads and runs models, one after the other, in a process that they may end.

Prints a line for each: its path's number, and what became of it, so that whoever reads knows at which one the
process died. python damaged_artefact_runner.py MODEL ...
"""

import sys

import numpy as np
import tvm
from collage import region


def main(paths):
    for number, path in enumerate(paths):
        print(number, "begun", flush=True)
        try:
            executor = region.load_executor(path)
            executor.set_input(0, np.ones(executor.get_input(0).shape, "float32"))
            executor.run()
            executor.get_output(0).numpy()
        except (tvm.error.TVMError, OSError, ValueError) as error:
            words = str(error).strip().splitlines()
            print(number, "refused", words[-1] if words else "", flush=True)
        else:
            print(number, "ran", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
