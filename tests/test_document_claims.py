# SPDX-License-Identifier: Apache-2.0
"""What the documents name is there: commands, flags, make's targets, variables, files, functions."""

import functools
import os
import re
import shlex

import documents
import pytest
import source_tree
from conftest import TREE

pytestmark = pytest.mark.fast

NAMES = documents.names()


def inline(name):
    return documents.read(name).inline_code


def blocks(name):
    return [b for b in documents.read(name).blocks if b.language in ("sh", "console")]


def complain(wrong):
    """Fail with one line for each (place, what)."""
    wrong = list(wrong)
    assert not wrong, "\n".join(f"{place}: {what}" for place, what in wrong)


# The command line.

# Flags of other programs that the documents mention, and whose they are.
OTHER_PROGRAMS = {
    "--no-deps": "pip",
    "-race": "go",
    "--durations": "pytest",
    **dict.fromkeys(("--dump-offloads", "--tuning-records", "--pass-config", "-rpath"), "tvmc"),
}


@pytest.fixture(scope="module")
def help_of(command):
    """help_of("db", "ls"): what `collage help db ls` prints."""

    @functools.cache
    def ask(*words):
        done = command("help", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return ask


@pytest.fixture(scope="module")
def grammar(help_of):
    """{words of a command: its flags}, from the program's own help."""
    listed = re.compile(r"^  (?:(?:db|bench) )?([a-z]+) +\S", re.M)

    def subcommands(*words):
        _, _, rest = help_of(*words).partition("Commands:\n")
        return listed.findall(rest.split("\n\n")[0])

    def flags(*words):
        section = help_of(*words).partition("\nFlags:\n")[2].partition("\n\n")[0]
        return set(re.findall(r"(?<![\w-])(--?[a-z][\w-]*)", section))

    found = {}
    for word in subcommands():
        found[(word,)] = flags(word)
        for second in subcommands(word):
            found[(word, second)] = flags(word, second)
    assert ("compile",) in found and ("db", "ls") in found
    assert {"--backends", "-o", "--search-time"} <= found[("compile",)]
    return found


def mistake(grammar, line):
    """What is wrong with a command line that begins with `collage`; "" for nothing."""
    words = shlex.split(line, comments=True)
    words = words[words.index("collage") + 1 :]
    if not words:
        return ""
    named = tuple(words[:2]) if tuple(words[:2]) in grammar else tuple(words[:1])
    if named == ("tvmc",):
        return ""  # what follows is that program's
    if named not in grammar:
        return f"there is no command `collage {words[0]}`"
    # `collage bench --json`: that of each command in the group.
    known = {"--help", "-h"}.union(*(flags for name, flags in grammar.items() if name[: len(named)] == named))
    for word in words[len(named) :]:
        flag = word.partition("=")[0]
        if re.match(r"--?[a-z]", flag) and flag not in known:
            return f"`collage {' '.join(named)}` has no flag {flag}"
    return ""


@pytest.mark.parametrize("name", NAMES)
def test_commands_and_their_flags_exist(name, grammar):
    anywhere = set().union(*grammar.values()) | set(OTHER_PROGRAMS)
    wrong = []
    for line, code in inline(name):
        words = code.split()
        if words[0] in {first for first, *_ in grammar} and len(words) > 1 and words[1][0] in "-abcdefghijklm":
            code = f"collage {code}" if tuple(words[:2]) in grammar or words[1].startswith("-") else code
        if re.match(r"([A-Z_]+=\S+ )*collage [a-z]", code):
            wrong.append((f"{name}:{line}", mistake(grammar, code)))
        elif re.match(r"--?[a-z]", code) and (flag := re.match(r"[\w-]+", code).group()) not in anywhere:
            wrong.append((f"{name}:{line}", f"no command has the flag {flag}"))
    for block in blocks(name):
        for number, line in enumerate(block.text.split("\n"), block.line):
            if re.match(r"([A-Z_]+=\S+ )*collage [a-z]", line):
                wrong.append((f"{name}:{number}", mistake(grammar, line)))
    complain([(place, what) for place, what in wrong if what])


def test_a_wrong_command_line_is_seen(grammar):
    assert mistake(grammar, "collage compile model.onnx --backends tvm,dnnl -o model.tar") == ""
    assert mistake(grammar, "A=b collage db ls --failures") == ""
    assert "no command `collage compil`" in mistake(grammar, "collage compil model.onnx")
    assert "has no flag --backend" in mistake(grammar, "collage compile model.onnx --backend tvm")
    assert "has no flag --repair" in mistake(grammar, "collage db ls --repair")


# make, scripts, variables.


@pytest.mark.parametrize("name", NAMES)
def test_make_targets_and_their_variables_exist(name):
    makefile = (TREE / "Makefile").read_text()
    texts = [(line, code) for line, code in inline(name) if code.startswith("make ")]
    texts += [
        (number, line)
        for block in blocks(name)
        for number, line in enumerate(block.text.split("\n"), block.line)
        if line.startswith("make ")
    ]
    wrong = []
    for line, code in texts:
        for word in shlex.split(code, comments=True)[1:]:
            variable, equals, _ = word.partition("=")
            if equals and not re.search(rf"^{variable} \?=|\$\({variable}\)", makefile, re.M):
                wrong.append((f"{name}:{line}", f"the Makefile has no variable {variable}"))
            if not equals and word not in source_tree.make_targets():
                wrong.append((f"{name}:{line}", f"the Makefile has no target {word}"))
    complain(wrong)


@pytest.mark.parametrize("name", NAMES)
def test_environment_variables_are_read_by_the_product(name):
    text = source_tree.source()
    document = documents.read(name)
    said = [(line, variable) for line, code in document.inline_code for variable in variables(code)]
    said += [(block.line, variable) for block in document.blocks for variable in variables(block.text)]
    complain(
        (f"{name}:{line}", f"nothing reads {variable}")
        for line, variable in said
        if not re.search(rf"\b{variable}\b", text)
    )


def variables(code):
    return re.findall(r"\b(?:COLLAGE|MKL|OPENBLAS|ONEDNN)_[A-Z_]+\b(?![<*])", code)


# Files and functions.

# Files that are not the tree's: what a make target writes, what is TVM's.
NOT_OURS = {
    "docs/results/threads.{txt,json}": "make bench-threads writes it",
    "src/relay/backend/contrib/dnnl/codegen.cc": "TVM's",
}


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_files(name):
    folder = os.path.dirname(TREE / name)
    complain(
        (f"{name}:{line}", f"there is no {target}")
        for line, target in documents.read(name).links
        if not re.match(r"https?://|#|mailto:", target)
        and not os.path.exists(os.path.join(folder, target.partition("#")[0]))
    )


def is_path(code):
    """Whether inline code names a file or a folder of the tree."""
    if not re.fullmatch(r"[\w.{},*/-]+", code) or code in NOT_OURS:
        return False
    top = {path.partition("/")[0] for path in source_tree.files() if "/" in path}
    return (code.partition("/")[0] in top and "/" in code) or bool(re.search(r"\w\.(go|cc|h|inc|sh|md|toml)$", code))


def is_file(code):
    """Whether inline code is the name of some file: a user's, or one that stands beside the document."""
    return bool(re.search(r"\w\.(py|json|onnx|so|tar|npz|patch|relay)$", code))


@pytest.mark.parametrize("name", NAMES)
def test_files_exist(name):
    complain(
        (f"{name}:{line}", f"there is no {code}")
        for line, code in inline(name)
        if is_path(code)
        and not source_tree.has_path(code)
        and not os.path.exists(os.path.join(os.path.dirname(TREE / name), code))
    )


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("examples/")])
def test_examples_name_files_of_theirs(name):
    """What an example's README calls `x.py`, `x.cc`, ... stands beside it, or one of its blocks writes it."""
    text = "".join(block.text for block in documents.read(name).blocks)
    sources = "".join(path.read_text() for path in (TREE / name).parent.iterdir() if path.is_file())
    complain(
        (f"{name}:{line}", f"there is no {code}")
        for line, code in inline(name)
        if re.fullmatch(r"[\w.]+", code) and is_file(code)
        if not (TREE / name).parent.joinpath(code).exists()
        if code not in text and f'"{code}"' not in sources
    )


# Python modules and variables in the documents that have the name of a Go package or type.
PYTHON_OBJECTS = ("relay", "tvm", "target", "region", "libcollage")


def undeclared(code):
    """What is wrong with `package.Name`, `package.Type.Name` or `Type.method`; "" for nothing."""
    code = re.sub(r"\(.*\)$", "", code)
    if is_path(code) or is_file(code) or not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){1,2}", code):
        return ""
    first, *rest = code.split(".")
    if first == "collage":
        return undeclared_python(code, rest)
    packages, methods = source_tree.go_packages(), source_tree.go_methods()
    if first in PYTHON_OBJECTS and rest[0][0].islower():
        return ""
    if first in packages:
        # A composite's name begins with its backend's, which is that of a package, too.
        if f'"{code}"' in source_tree.source():
            return ""
        known = packages[first] | methods.get(first, set())
        return "" if set(rest) <= known else f"Go has no {code}"
    if first in methods:
        every = methods[first].union(*packages.values())
        return "" if set(rest) <= every else f"no Go type has {code}"
    return ""


def undeclared_python(code, rest):
    """`collage.…` is a packed function, an option, a module, or a name in one."""
    if f'"{code}"' in source_tree.source() or source_tree.python_names(".".join(rest)) is not None:
        return ""
    if len(rest) == 1 and f'\t{{"{rest[0]}", ' in (TREE / "pass/settings/options.go").read_text():
        return ""  # what PassContext calls an option
    *module, last = rest
    known = source_tree.python_names(".".join(module) if module else "")
    if known is None or not module:
        return "" if f'"{last}"' in (TREE / "python/collage/__init__.py").read_text() else f"there is no {code}"
    return "" if last in known else f"python/collage/{'/'.join(module)}.py has no {last}"


@pytest.mark.parametrize("name", NAMES)
def test_functions_are_declared(name):
    found = [(f"{name}:{line}", undeclared(code)) for line, code in inline(name)]
    complain([(place, what) for place, what in found if what])


def test_what_is_not_declared_is_seen():
    assert undeclared("pass.Partition") == undeclared("Module.compete") == undeclared("place.TreeSolver") == ""
    assert "no pass.Partitio" in undeclared("pass.Partitio")
    assert "has Module.competes" in undeclared("Module.competes")
    assert undeclared("collage.patterns.table_of(backend, module)") == undeclared("collage.partition") == ""
    assert "no table_off" in undeclared("collage.patterns.table_off")
    assert "no collage.partitio" in undeclared("collage.partitio")
    assert undeclared("collage.tuning_log") == "" and "no collage.tuning_logs" in undeclared("collage.tuning_logs")
    assert source_tree.has_path("pass/placing/border.go") and not source_tree.has_path("pass/placing/borders.go")
    assert source_tree.has_path("docs/results/all.{txt,json}") and not source_tree.has_path(
        "docs/results/al.{txt,json}"
    )


@pytest.mark.parametrize("name", NAMES)
def test_cpp_functions_are_declared(name):
    text = source_tree.source()
    theirs = {"ReprPrinter::vtable"}  # TVM's
    complain(
        (f"{name}:{line}", f"C++ has no {code}")
        for line, code in inline(name)
        if re.fullmatch(r"\w+::\w+", code) and code not in theirs and not code.startswith(("std::", "tbb::"))
        if not all(re.search(rf"\b{part}\b", text) for part in code.split("::"))
    )
