# SPDX-License-Identifier: Apache-2.0
"""python -m random_programs --seed N [--only BACKEND] [--shrink]: one program again, said aloud.

Run it in tests/, with the interpreter of .venv. --seeds A B runs a range and prints a line for each that
fails.
"""

import argparse
import functools
import logging
import sys
import tempfile
from pathlib import Path

import placed

from . import blocks, placing, program, running, shrink


def attempt(one, setting, full=False):
    """Place and compare a program; "" or what is wrong."""
    with tempfile.TemporaryDirectory(prefix="random-programs-") as folder:
        try:
            done = placing.place(one, setting, Path(folder))
            if one.scoped:
                running.compare_scoped(done)
            else:
                running.compare([done], full)
        except Exception as error:
            return blocks.told(error)
    return ""


def kind(text):
    """What two failures of one sort have in common."""
    return "differs" if "instead of" in text else text[:40]


def arguments():
    parser = argparse.ArgumentParser(prog="python -m random_programs", description=__doc__)
    parser.add_argument("--seed", type=int, help="the program")
    parser.add_argument("--seeds", type=int, nargs=2, metavar=("A", "B"), help="all of A to B - 1")
    parser.add_argument("--backends", default="", help="only these, with commas between them")
    parser.add_argument("--only", default="", help="give this backend all that it takes")
    parser.add_argument("--shrink", action="store_true", help="make it smaller while it still fails")
    parser.add_argument("--full", action="store_true", help="build as users do, through a file")
    return parser.parse_args()


def main():
    given = arguments()
    import collage

    collage.library.load()
    logging.getLogger("autotvm").setLevel(logging.ERROR)
    usable = given.backends.split(",") if given.backends else placed.usable()
    if given.seeds:
        with tempfile.TemporaryDirectory(prefix="random-programs-") as folder:
            seeds = range(*given.seeds)
            report = blocks.run(seeds, usable, Path(folder), stop_at=1 << 30, say=functools.partial(print, flush=True))
        for seed, what in report.failures:
            print(f"seed {seed}: {what}")
        print(f"{report.programs} programs of {report.operators} operators, {report.hybrid} hybrid")
        print(f"regions: {report.regions}; {len(report.moved)} badly conditioned, {len(report.failures)} failed")
        print(f"wrong under plain TVM, too: {report.wrong_in_tvm}; not to be built by it: {report.not_in_tvm}")
        print(f"wrong only in one build: {report.only_together}")
        return bool(report.failures)
    one, setting = program.generate(given.seed), placing.setting(given.seed, usable)
    if given.only:
        setting = placing.Setting(given.seed, ["tvm", given.only], only=given.only, normalised=setting.normalised)
    print(one.module, setting, sep="\n")
    what = attempt(one, setting, given.full)
    print(what or "passes")
    if what and given.shrink:
        wanted = kind(what)
        small = shrink.shrunk(one, lambda p: kind(attempt(p, setting, given.full)) == wanted)
        print(small.module, attempt(small, setting, given.full), sep="\n")
    return bool(what)


if __name__ == "__main__":
    sys.exit(main())
