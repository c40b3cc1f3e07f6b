# SPDX-License-Identifier: Apache-2.0
"""Sums up JUnit files of a test run and says no where it is green by absence: verdict.py [--partial] FILE...

Prints the seconds of each file of tests, the slowest ten tests, every skip with its reason, and as the last
line the counts. Exit code 1 where a test failed, a report is missing or holds no test, or a test was skipped
for a reason that tests/expected_skips.txt does not expect. --partial (a run without TVM, say) takes any skip.
"""

import argparse
import collections
import fnmatch
import os
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

EXPECTED = Path(__file__).resolve().parents[1] / "tests" / "expected_skips.txt"

Case = collections.namedtuple("Case", "report group name seconds outcome reason")


def cases(path):
    """The test cases of one JUnit file, as pytest, gotestsum and ctest write them."""
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            outcome, reason = "passed", ""
            for child in case:
                if child.tag in ("failure", "error"):
                    outcome = "failed"
                elif child.tag == "skipped" and outcome == "passed":
                    outcome, reason = "skipped", told(child)
            group = case.get("classname") or suite.get("name") or ""
            yield Case(path.stem, group, case.get("name", ""), float(case.get("time") or 0), outcome, reason)


def told(skipped):
    """Why a test was skipped: pytest says it in an attribute, Go in the last line of its output."""
    said = (skipped.get("message") or "") + "\n" + (skipped.text or "")
    lines = [line.strip() for line in said.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("===", "---"))]
    return re.sub(r"^\w+\.go:\d+: ", "", lines[0]) if lines else "no reason"


def expectations():
    """(pattern of the test, pattern of the reason) of skips that are no fault. Those below the line
    [backends] hold only where no backend is demanded.
    """
    found, demanded = [], bool(os.environ.get("COLLAGE_REQUIRE_BACKENDS"))
    for line in EXPECTED.read_text().splitlines():
        line = line.partition("#")[0].strip()
        if line == "[backends]" and demanded:
            break
        if line and line != "[backends]":
            test, _, reason = line.partition("|")
            found.append((test.strip(), reason.strip()))
    return found


def main():
    """Read the reports and print the sums. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partial", action="store_true", help="take any skip")
    parser.add_argument("reports", nargs="+", type=Path)
    options = parser.parse_args()
    found, faults = [], []
    for path in options.reports:
        try:
            here = list(cases(path))
        except (OSError, ElementTree.ParseError) as error:
            faults.append(f"{path}: no report: {error}")
            continue
        if not here:
            faults.append(f"{path}: holds no test")
        found += here

    by_group = collections.Counter()
    for case in found:
        by_group[case.report, case.group] += case.seconds
    print("seconds  tests of")
    for (report, group), seconds in by_group.most_common():
        if seconds >= 0.5:
            print(f"{seconds:7.1f}  {report}: {group}")
    print("\nseconds  slowest ten")
    for case in sorted(found, key=lambda case: -case.seconds)[:10]:
        print(f"{case.seconds:7.1f}  {case.group}::{case.name}")

    expected = expectations()
    skipped = [case for case in found if case.outcome == "skipped"]
    reasons = collections.defaultdict(list)
    for case in skipped:
        name = f"{case.group}.{case.name}"
        known = any(fnmatch.fnmatchcase(name, test) and fnmatch.fnmatchcase(case.reason, reason)
                    for test, reason in expected)  # fmt: skip
        reasons[case.reason, known or options.partial].append(name)
    if reasons:
        print("\nskipped")
    for (reason, fine), names in sorted(reasons.items()):
        note, more = "" if fine else "   <- NOT EXPECTED", ", ..." * (len(names) > 1)
        print(f"{len(names):7}  {reason}{note}: {names[0]}{more}")
        if not fine:
            faults += [f"{name}: skipped, which is not expected: {reason}" for name in names]
    failed = [case for case in found if case.outcome == "failed"]
    faults += [f"{case.group}::{case.name}: failed ({case.report})" for case in failed]

    for fault in faults:
        print(f"verdict: {fault}", file=sys.stderr)
    print(f"\n{len(found) - len(failed) - len(skipped)} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
