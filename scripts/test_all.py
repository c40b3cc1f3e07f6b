# SPDX-License-Identifier: Apache-2.0
"""The long tests, in pieces: test_all.py [--list] [--share] [PIECE...]

All pieces, those named, or with --share those that are this commit's: the pieces are dealt into shares of
about equal length, and the count of commits says whose turn it is, so that successive commits go through all
of them. Each piece is a command with an exit code; what it printed is kept in build/reports/long/PIECE.log,
and shown where it fails. A piece that outlives four times what it is expected to take is ended, with its
children.
"""

import argparse
import collections
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
LOGS = TREE / "build" / "reports" / "long"
# Minutes of a share at most, on two cores of the machine below: a slower one takes three times as long for all, and
# must be done within the gate's 90 minutes.
SHARE_MINUTES = 12

# minutes: what it took on two cores of an AMD EPYC (Zen 5); they decide how the shares are dealt.
Piece = collections.namedtuple("Piece", "name minutes command")


def pieces():
    """All of them, in the order in which they run."""
    slices, rest = 12, "not test_many_programs"
    found = [
        Piece(
            f"long-{at}",
            6,
            pytest(f"long-{at}", 2, "long and not alone", f"-k '{rest}' --slice {at}/{slices}"),
        )
        for at in range(1, slices + 1)
    ]
    found += [
        Piece(f"random-{at}", 6, pytest(f"random-{at}", 2, "long", f"-k '{programs(at)}'"))
        for at in range(300, 10_000, 3 * 250)
    ]
    found += [
        Piece("long-alone", 8, pytest("long-alone", 1, "long and alone")),
        # All random cases; under the race detector, and in the fast tier, it is a part of them.
        Piece("go", 2, "go test ./..."),
        Piece("native-asan", 6, "COLLAGE_STRESS_SECONDS=180 scripts/test_native.sh asan"),
        Piece("native-tsan", 6, "COLLAGE_STRESS_SECONDS=180 scripts/test_native.sh tsan"),
        Piece("native-aarch64", 2, "scripts/test_native.sh aarch64"),
        Piece("native-tidy", 8, "scripts/test_native.sh tidy"),
        Piece("pythons", 8, "scripts/test_python.sh 3.10 3.12 3.13"),
        Piece("fuzz-go", 20, "scripts/fuzz_go.sh"),
        Piece("fuzz-native", 10, "scripts/fuzz_native.sh"),
        Piece("sabotage", 6, "scripts/sabotage.sh"),
    ]
    return found


def programs(first):
    """What chooses three of the cases of test_many_programs, each of 250 seeds, the last one fewer."""
    blocks = [f"{at}-{min(at + 249, 9_999)}" for at in range(first, first + 3 * 250, 250)]
    return f"test_many_programs and ({' or '.join(blocks)})"


def pytest(name, processes, marks, *arguments):
    """The command that runs the Python tests with these marks and writes build/reports/long/NAME.xml."""
    how = f"-v -p no:cacheprovider -n {processes} --dist worksteal -m '{marks}'"
    return " ".join(["scripts/test.sh", how, f"--junitxml=build/reports/long/{name}.xml", *arguments])


def shares(found):
    """The pieces dealt into as few shares as keep to SHARE_MINUTES: the longest first, each to the
    share that is the shortest so far.
    """
    count = max(1, -(-sum(piece.minutes for piece in found) // SHARE_MINUTES))
    dealt = [[] for _ in range(count)]
    for piece in sorted(found, key=lambda piece: -piece.minutes):
        min(dealt, key=lambda share: sum(one.minutes for one in share)).append(piece)
    return dealt


def turn():
    """The number of commits that led here, which says whose turn it is."""
    counted = subprocess.run(
        ["git", "rev-list", "--count", "HEAD"], cwd=TREE, capture_output=True, text=True, check=True
    )
    return int(counted.stdout)


def run(piece):
    """Run one piece; True if it passed."""
    LOGS.mkdir(parents=True, exist_ok=True)
    path, started = LOGS / f"{piece.name}.log", time.monotonic()
    print(f"test-all: {piece.name}: {piece.command}", flush=True)
    # Where scripts/setup.sh looks for Go, too.
    environment = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/local/go/bin"}
    with path.open("wb") as log:
        process = subprocess.Popen(
            piece.command,
            shell=True,
            cwd=TREE,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
        )
        try:
            code = process.wait(timeout=4 * 60 * piece.minutes)
            said = f"exit code {code}"
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            code, said = 1, f"ended after {error.timeout / 60:.0f} minutes"
    minutes = (time.monotonic() - started) / 60
    if code != 0:
        lines = path.read_text(errors="replace").splitlines(keepends=True)
        # pytest's own summary is missing where it was ended.
        sys.stdout.writelines(line for line in lines[:-60] if re.search(r"\b(FAILED|ERROR) tests/", line))
        sys.stdout.writelines(lines[-60:])
    print(
        f"test-all: {piece.name}: {'passed' if code == 0 else 'FAILED, ' + said}, {minutes:.1f} min",
        flush=True,
    )
    return code == 0


def main():
    """Run what was asked for. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="say what there is, run nothing")
    parser.add_argument("--share", action="store_true", help="this commit's share")
    parser.add_argument("pieces", nargs="*", metavar="PIECE", help="the pieces to run (all)")
    options = parser.parse_args()
    found = pieces()
    if unknown := set(options.pieces) - {piece.name for piece in found}:
        parser.error(f"there is no piece {', '.join(sorted(unknown))}; --list says which there are")
    chosen = [piece for piece in found if piece.name in options.pieces] or found
    if options.share:
        dealt = shares(found)
        mine = turn() % len(dealt)
        chosen = [piece for piece in found if piece in dealt[mine]]
        print(f"test-all: share {mine + 1} of {len(dealt)}: {', '.join(piece.name for piece in chosen)}")
    if options.list:
        for piece in chosen:
            print(f"{piece.name:14} {piece.minutes:3} min  {piece.command}")
        return 0
    failed = [piece.name for piece in chosen if not run(piece)]
    for name in failed:
        print(f"test-all: FAILED: {name} (build/reports/long/{name}.log)", file=sys.stderr)
    print(f"{len(chosen) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
