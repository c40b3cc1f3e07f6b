# SPDX-License-Identifier: Apache-2.0
"""What is kept from the standard error, and what is not."""

import os
import subprocess
import sys

import pytest
from collage import quiet
from conftest import environment

pytestmark = pytest.mark.fast

NOTE = "[12:34:56] /project/tvm/src/te/schedule/bound.cc:119: not in feed graph consumer = hybrid(f, 0x1)\n"


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ([NOTE], ""),
        (["a\n", NOTE, "b\n"], "a\nb\n"),
        ([NOTE[:20], NOTE[20:], "b"], "b"),
        (["[12:34:56] another: note\n", NOTE, NOTE], "[12:34:56] another: note\n"),
        (["50 %\r", "100 %\r", NOTE, "no end"], "50 %\r100 %\rno end"),
        (["[12:34:56] cut"], "[12:34:56] cut"),
        (["x" * 200_000 + "\n", NOTE], "x" * 200_000 + "\n"),
    ],
)
def test_notes_are_left_out_and_nothing_else(written, seen, tmp_path):
    """Also where a line comes in pieces, or has no end; what is written behind it comes out as it is."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os\nfrom collage import quiet\nwritten = " + repr(written) + "\n"
        "with quiet.without_notes():\n    for one in written:\n        os.write(2, one.encode())\n"
        "os.write(2, b'|' + written[0].encode())\n"
    )
    told = subprocess.run([sys.executable, program], capture_output=True, timeout=60, env=environment())
    assert told.returncode == 0
    assert told.stderr.decode() == seen + "|" + written[0]


def test_a_process_that_was_started_meanwhile_is_heard_on(tmp_path):
    """It has the standard error of that time, and outlives it."""
    program = tmp_path / "program.py"
    program.write_text(
        "import subprocess\nfrom collage import quiet\n"
        "with quiet.without_notes():\n"
        "    said = 'echo first >&2; read go; echo second >&2'\n"
        "    other = subprocess.Popen(['sh', '-c', said], stdin=subprocess.PIPE)\n"
        "other.communicate(b'go')\n"
        "assert other.returncode == 0\n"
        "import threading\n[one.join() for one in threading.enumerate() if one.daemon]\n"
    )
    told = subprocess.run([sys.executable, program], capture_output=True, timeout=60, env=environment())
    assert told.returncode == 0, told.stderr
    assert told.stderr.decode() == "first\nsecond\n"


def test_an_error_comes_through_and_leaves_all_as_it_was(capfd):
    before = os.fstat(2)
    with pytest.raises(ValueError, match="it"), quiet.without_notes():
        os.write(2, (NOTE + "said\n").encode())
        raise ValueError("it")
    assert os.path.sameopenfile(2, os.dup(2)) and os.fstat(2).st_ino == before.st_ino
    assert capfd.readouterr().err == "said\n"
