# SPDX-License-Identifier: Apache-2.0
"""What commands show: three lines in the end, on a terminal what goes on, and colours nowhere."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading

import pytest
from conftest import PACKAGE, SAMPLES, environment
from test_json import small_network


@pytest.fixture
def shown(collage_library, tmp_path):
    """shown(*arguments): (exit code, standard output, what a terminal of 160 columns got of the standard error)."""
    binary = os.environ.get("COLLAGE_BINARY") or str(PACKAGE / "bin" / "collage")

    def run(*arguments, **extra):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        process = subprocess.Popen(
            [binary, *map(str, arguments)],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
            env=environment(TERM="xterm-256color", **extra),
        )
        os.close(theirs)
        got = bytearray()

        def read():
            while True:
                try:
                    piece = os.read(ours, 65536)
                except OSError:  # the other side is closed
                    return
                if not piece:
                    return
                got.extend(piece)

        reader = threading.Thread(target=read)
        reader.start()
        out, _ = process.communicate(timeout=300)
        reader.join()
        os.close(ours)
        return process.returncode, out, got.decode(errors="replace")

    return run


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("settings", [{}, {"NO_COLOR": "1"}])
def test_nothing_is_coloured(shown, settings):
    for arguments in (["help"], ["backends"], ["compile", "nothing.onnx"], ["version", "--json"]):
        _, out, err = shown(*arguments, **settings)
        assert not COLOUR.search(out + err), arguments


def test_a_search_tells_the_best_and_the_time_left(shown, store, tmp_path):
    model = small_network(tmp_path / "small.onnx")
    fresh = tmp_path / "costs.jsonl"
    few = ("--trials", 3, "--repeat", SAMPLES, "--rounds", 2)
    offered = ("--backends", "tvm,dnnl", "--db", fresh, "--search-time", "40s")
    code, out, err = shown("compile", model, "-o", "model.tar", *offered, *few)
    assert code == 0, err
    assert re.search(r"searching among whole networks  \[[=> -]+\] \d+ s left ", err)
    assert re.search(r"s left  best so far [\d.]+ ms", err)
    assert not COLOUR.search(out + err)
    lines = out.splitlines()
    assert len(lines) == 3, out
    assert re.search(
        r" is kept: .*\. A run takes [\d.]+ ms(; (tvm|dnnl) alone takes [\d.]+ times as long.*)?\.$", lines[0]
    )
    assert re.fullmatch(r"\d+ operators? runs? on (tvm|dnnl)(, \d+ on (tvm|dnnl))*\.", lines[1])
    assert re.fullmatch(r"wrote model\.tar \([\d.]+ [kM]?B(ytes)?\)", lines[2])


def test_warnings_are_told_beside_the_three_lines(command, tmp_path):
    from test_witness import network

    network(tmp_path / "drawn.onnx", "Bernoulli", seed=1.0)
    done = command("compile", tmp_path / "drawn.onnx", "--backends", "tvm", "-o", tmp_path / "model.tar", "-q",
                   "--search-time", "20s", "--db", tmp_path / "costs.jsonl", "--rounds", 1)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3
    said = "collage: warning: Whether TVM read the model right was not checked: it draws random numbers (Bernoulli)."
    assert said in done.stderr.splitlines()
    assert command("help", "compile").stdout.count("in three lines") == 1
