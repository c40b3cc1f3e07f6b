# SPDX-License-Identifier: Apache-2.0
"""oneDNN 2.6, which the backend dnnl runs on, beside oneDNN 3.2.

    bench_onednn.py [--threads N] [--rounds N] [--json FILE]

The same primitives of both (scripts/onednn/problems.cc) on one thread or more, process by process in turn. Of each
primitive the fastest round counts, each of which is a low percentile of many calls. oneDNN 3.2 is fetched into
build/onednn and installed nowhere.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import zipfile
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
BUILD = TREE / "build" / "onednn"
PREFIX = Path(sys.prefix)
# Intel's math libraries, which oneDNN needs and does not name.
NEEDED = ["libsvml.so", "libirng.so", "libimf.so", "libintlc.so.5"]


def fetch():
    """Fetch and unpack oneDNN 3.2; gives its include folder and its library folder."""
    unpacked = BUILD / "3.2"
    if not (unpacked / "complete").exists():
        wheels = BUILD / "wheels"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--require-hashes", "--dest", wheels, "--requirement", TREE / "scripts/onednn/requirements.txt"]
        subprocess.run(command, check=True)
        for wheel in wheels.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(unpacked)
        (unpacked / "complete").touch()
    (include,) = unpacked.glob("onednn_devel*/data/include")
    (library,) = unpacked.glob("onednn_cpu*/data/lib")
    return include, library


def compile_for(version, include, library):
    """Compile the problems against one oneDNN; gives the command and environment that run them."""
    program = BUILD / f"problems-{version}"
    libraries = [f"-l:{name}" for name in (f"libdnnl.so.{version[0]}", "libtbb.so.12", *NEEDED)]
    command = ["g++", "-O2", "-std=c++17", f"-I{include}", TREE / "scripts/onednn/problems.cc", "-o", program]
    command += [f"-L{library}", f"-L{PREFIX / 'lib'}", "-Wl,--no-as-needed", *libraries]
    subprocess.run([*command, f"-Wl,-rpath-link,{PREFIX / 'lib'}"], check=True)
    paths = os.pathsep.join(map(str, (library, PREFIX / "lib")))
    return program, {**os.environ, "LD_LIBRARY_PATH": paths}


def run(program, environment, threads):
    """Run the problems once on the last so many processors: {name: (implementation, milliseconds)}."""
    processors = sorted(os.sched_getaffinity(0))[-threads:]
    done = subprocess.run(
        ["taskset", "-c", ",".join(map(str, processors)), program],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return {name: (implementation, float(ms)) for name, implementation, ms in rows}


def merge(found, more):
    """Keep the faster of two runs of each problem."""
    for name, (implementation, ms) in more.items():
        if name not in found or ms < found[name][1]:
            found[name] = (implementation, ms)


def kind(name):
    """The group of problems that one belongs to, for the summary."""
    last = name.split()[-1]
    return last if last in ("f32", "bf16", "int8") else "other f32"


def table(old, new):
    """The report as text."""
    lines = [f"{'':42} {'2.6 ms':>9} {'3.2 ms':>9} {'2.6/3.2':>8}  kernels"]
    logs = {}
    for name in sorted(new, key=lambda name: (kind(name), list(new).index(name))):
        (before, a), (after, b) = old.get(name, ("", 0.0)), new[name]
        ratio = a / b if a and b else 0
        kernels = before if before == after else f"{before or '-'} | {after}"
        shown = [f"{value:9.4f}" if value else f"{'-':>9}" for value in (a, b)]
        lines.append(f"{name:42} {shown[0]} {shown[1]} {f'{ratio:8.2f}' if ratio else '       -'}  {kernels}")
        if ratio:
            logs.setdefault(kind(name), []).append(math.log(ratio))
    lines.append("")
    for group, values in logs.items():
        mean = math.exp(sum(values) / len(values))
        lines.append(f"{group}: time of 2.6 to 3.2, geometric mean of {len(values)}: {mean:.3f}")
    return "\n".join(lines)


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often each version has its turn (5)")
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--threads", type=int, default=1, help="on how many processors (1)")
    options = parser.parse_args()
    if not 1 <= options.threads <= len(os.sched_getaffinity(0)):
        parser.error(f"--threads {options.threads}: there are {len(os.sched_getaffinity(0))} processors")
    BUILD.mkdir(parents=True, exist_ok=True)
    programs = [
        compile_for("2.6", PREFIX / "include", PREFIX / "lib"),
        compile_for("3.2", *fetch()),
    ]
    found = [{}, {}]
    for turn in range(options.rounds):
        print(f"round {turn + 1} of {options.rounds}", file=sys.stderr, flush=True)
        for versions, program in zip(found, programs, strict=True):
            merge(versions, run(*program, options.threads))
    on = "one thread" if options.threads == 1 else f"{options.threads} threads"
    print(f"oneDNN 2.6 beside 3.2, {on}, fastest of {options.rounds} rounds in turn\n")
    print(table(*found))
    if options.json:
        told = {"threads": options.threads, "2.6": found[0], "3.2": found[1]}
        options.json.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
