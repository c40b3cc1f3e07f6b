# SPDX-License-Identifier: Apache-2.0
"""A range of seeds: each program placed, those that can be built together built together, all compared."""

import traceback
from dataclasses import dataclass, field

import tvm

from . import placing, program, running

# How many programs share a build.
TOGETHER = 12
# One of so many builds is made as users make it: with all optimisations, written to a file, linked and
# loaded.
FULL = 4


@dataclass
class Report:
    """What became of the seeds."""

    programs: int = 0
    operators: int = 0
    # Programs that have a region of a backend beside TVM, and how many regions there are by backend.
    hybrid: int = 0
    regions: dict = field(default_factory=dict)
    # Seeds of programs whose results say little: badly conditioned, or wrong under plain TVM, too.
    moved: list = field(default_factory=list)
    wrong_in_tvm: list = field(default_factory=list)
    # Seeds of programs that plain TVM cannot build.
    not_in_tvm: list = field(default_factory=list)
    # What was wrong with builds of several programs that are right one by one.
    only_together: list = field(default_factory=list)
    # (seed, what is wrong)
    failures: list = field(default_factory=list)

    def count(self, placed):
        self.programs += 1
        self.operators += len(placed.program.made)
        others = [r["backend"] for r in placed.plan["regions"] or [] if r["backend"] != "tvm"]
        self.hybrid += bool(others)
        for name in others:
            self.regions[name] = self.regions.get(name, 0) + 1


def run(seeds, usable, folder, stop_at=5, say=lambda what: None):
    """Run seeds; ends early where so many have failed. say is told what comes next, in case it is a crash."""
    report, waiting, builds = Report(), [], 0

    def flush():
        nonlocal builds
        builds += 1
        say(f"building {[placed.program.seed for placed in waiting]}")
        built(list(waiting), report, full=builds % FULL == 2)
        waiting.clear()

    for seed in seeds:
        if len(report.failures) >= stop_at:
            break
        say(f"placing {seed}")
        try:
            placed = placing.place(program.generate(seed), placing.setting(seed, usable), folder)
            report.count(placed)
            if placed.program.scoped:
                running.compare_scoped(placed)
            else:
                waiting.append(placed)
        except Exception as error:
            report.failures.append((seed, told(error)))
        if len(waiting) >= TOGETHER:
            flush()
    if waiting:
        flush()
    return report


def built(batch, report, full):
    """Compare a batch; where that fails, one by one."""
    try:
        moved, wrong_in_tvm = running.compare(batch, full)
        report.moved += moved
        report.wrong_in_tvm += wrong_in_tvm
    except Exception as error:
        if len(batch) == 1:
            if isinstance(error, placing.Broken) or running.tvm_alone(batch):
                report.failures.append((batch[0].program.seed, told(error)))
            else:
                report.not_in_tvm.append(batch[0].program.seed)
            return
        for one in batch:
            built([one], report, full)
        seeds = {p.program.seed for p in batch}
        # TVM has passes that only some mixtures of programs break. Where the plain programs break one, too, it says
        # nothing about us; else it is told (its Inline of the regions of 9625 to 9637), and few may be.
        if any(seed in seeds for seed, _ in report.failures):
            return
        what = f"only together, {sorted(seeds)}: {told(error)}"
        if not isinstance(error, tvm.TVMError):
            report.failures.append((batch[0].program.seed, what))
        elif running.tvm_alone(batch):
            report.only_together.append(what)


def told(error):
    """An error in some lines."""
    if isinstance(error, placing.Broken):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__} at {last.name}: " + " | ".join(lines[-3:])[:1500]
