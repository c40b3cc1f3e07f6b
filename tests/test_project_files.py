# SPDX-License-Identifier: Apache-2.0
"""The files for those who come after: the workflow, pre-commit's hooks, .editorconfig, the changelog."""

import configparser
import fnmatch
import re
import subprocess

import pytest
import source_tree
from conftest import PACKAGE, TREE

pytestmark = pytest.mark.fast

WORKFLOWS = sorted((TREE / ".github" / "workflows").glob("*.yml"))


def tracked():
    """The files that git has, or would take."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=TREE, capture_output=True
    )
    assert listed.returncode == 0, listed.stderr
    return [name for name in listed.stdout.decode().split("\0") if name and (TREE / name).is_file()]


def text_of(name):
    """A file's text; None for what is none."""
    try:
        return (TREE / name).read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return None


# The workflow.


def test_the_workflow_runs_what_everybody_runs():
    """Its steps are make's targets, which exist (scripts/check.sh has actionlint read the rest)."""
    (workflow,) = WORKFLOWS
    commands = re.findall(r"^ +- run: (.*)$", workflow.read_text(), re.M)
    targets = set()
    for command in commands:
        if command.startswith(("apt-get ", "git config --global --add safe.directory ")):
            continue
        program, target, *variables = re.sub(r"\$\{\{.*?\}\}", "", command).split()
        assert program == "make" and target in source_tree.make_targets(), command
        assert all(re.match(r"PYTHON=|ARGS=", variable) for variable in variables), command
        targets.add(target)
    assert targets == {"check", "test-fast", "test", "test-all"}
    assert len(commands) == len(re.findall(r"\brun:", workflow.read_text()))


def test_the_workflow_has_each_python_that_the_package_takes():
    (workflow,) = WORKFLOWS
    (versions,) = re.findall(r"python: \[(.*)\]", workflow.read_text())
    (least, below) = re.search(
        r'requires-python = ">=3\.(\d+),<3\.(\d+)"', (TREE / "pyproject.toml").read_text()
    ).groups()
    assert re.findall(r'"(3\.\d+)"', versions) == [f"3.{minor}" for minor in range(int(least), int(below))]


def test_the_gate_runs_checks_and_tests():
    """.ci/run and the workflow ask for the same."""
    assert {"check", "test", "test-all"} <= set(re.findall(r"^make ([\w-]+)", (TREE / ".ci" / "run").read_text(), re.M))


def test_check_reads_the_workflow():
    assert re.search(r"actionlint@v[\d.]+ \.github/workflows/\*\.yml", (TREE / "scripts" / "check.sh").read_text())


# pre-commit.


def test_hooks_are_what_check_runs():
    text, check = (TREE / ".pre-commit-config.yaml").read_text(), (TREE / "scripts" / "check.sh").read_text()
    hooks = dict(zip(re.findall(r"- id: (\S+)", text), re.findall(r"entry: (.+)", text), strict=True))
    assert re.findall(r"- repo: (\S+)", text) == ["local"]
    assert text.count("language: system") == len(hooks) == 5
    for entry in hooks.values():
        # As check.sh writes it: tools of .venv by "$bin/TOOL".
        tool, *arguments = entry.split()
        if tool.startswith(".venv/bin/"):
            wanted = f'"$bin/{tool.removeprefix(".venv/bin/")}" {" ".join(arguments)}'
        elif tool == "bash":
            wanted = "bash -n"
        else:
            wanted = entry
        assert wanted in check, entry


@pytest.mark.parametrize("hook, yes, no", [
    ("gofmt", "pass/pass.go", "pass/pass.py"),
    ("ruff-check", "tests/test_pass.py", "docs/x.py"),
    ("ruff-format", "examples/as_a_pass/place.py", "place.pyc"),
    ("clang-format", "byoc/runtime/arena.cc", "byoc/runtime/x.cmake"),
    ("shell", ".ci/run", "Makefile"),
])  # fmt: skip
def test_hooks_are_for_files(hook, yes, no):
    text = (TREE / ".pre-commit-config.yaml").read_text()
    (pattern,) = re.findall(rf"- id: {hook}\n(?: .*\n)*? +files: (.+)", text)
    assert re.search(pattern, yes) and not re.search(pattern, no)


# .editorconfig.


def rules():
    """[(pattern, settings)] of .editorconfig, the later go before the earlier."""
    parser = configparser.ConfigParser()
    parser.read_string("[top]\n" + (TREE / ".editorconfig").read_text())
    assert parser["top"]["root"] == "true"
    return [(name, dict(parser[name])) for name in parser.sections() if name != "top"]


def settings_for(name, sections):
    told = {}
    for pattern, settings in sections:
        alternatives = re.fullmatch(r"(.*)\{(.*)\}(.*)", pattern)
        patterns = [pattern]
        if alternatives:
            before, inner, after = alternatives.groups()
            patterns = [before + one + after for one in inner.split(",")]
        base = name.rsplit("/", 1)[-1]
        # A pattern with a slash is relative to the file of the patterns.
        if any(
            fnmatch.fnmatch(name, one.replace("**/", "*")) if "/" in one else fnmatch.fnmatch(base, one)
            for one in patterns
        ):
            told |= settings
    return told


def test_files_are_as_editorconfig_says():
    sections, wrong = rules(), []
    for name in tracked():
        text = text_of(name)
        # Licences are others' texts, a fuzzer's inputs are as they are.
        if not text or name.endswith((".svg", ".patch", "LICENSE")):
            continue
        if name.startswith(("scripts/notices/", "tests/native/fuzz/corpus/")):
            continue
        told = settings_for(name, sections)
        if told["insert_final_newline"] == "true" and not text.endswith("\n"):
            wrong.append(f"{name}: no newline at its end")
        if told["trim_trailing_whitespace"] == "true" and re.search(r"[ \t]$", text, re.M):
            wrong.append(f"{name}: spaces at the end of a line")
        if told["end_of_line"] == "lf" and "\r\n" in text and "testdata" not in name:
            wrong.append(f"{name}: CR LF")
        if told["indent_style"] == "tab" and name.endswith(".go") and re.search(r"^ +\S", outside_strings(text), re.M):
            wrong.append(f"{name}: spaces before Go code")
    assert not wrong, "\n".join(wrong)


def outside_strings(go):
    """Go code without raw strings and long comments."""
    return re.sub(r"`[^`]*`|/\*.*?\*/", "", go, flags=re.S)


def test_editorconfig_is_understood():
    sections = rules()
    assert settings_for("pass/pass.go", sections)["indent_style"] == "tab"
    assert settings_for("byoc/runtime/arena.cc", sections)["max_line_length"] == "110"
    assert settings_for("docs/results/all.txt", sections)["trim_trailing_whitespace"] == "unset"
    assert settings_for("Makefile", sections)["indent_style"] == "tab"
    assert settings_for("relay/testdata/a.txt", sections)["insert_final_newline"] == "unset"


# The changelog, and what each source file says first.


def test_the_changelog_has_this_version():
    text = (TREE / "CHANGELOG.md").read_text()
    (version,) = re.findall(r'__version__ = "([^"]+)"', (PACKAGE / "_version.py").read_text())
    heads = re.findall(r"^## \[(.+?)\](.*)$", text, re.M)
    assert heads[0] == ("Unreleased", "")
    assert version in [head for head, _ in heads]
    assert all(re.fullmatch(r" - \d{4}-\d\d-\d\d", date) for _, date in heads[1:])
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Known limits"}
    assert set(re.findall(r"^### (.+)$", text, re.M)) <= kinds


SOURCES = (".go", ".py", ".cc", ".c", ".h", ".inc", ".sh", ".yml", ".cmake")


def test_each_source_file_names_its_licence():
    sources = [name for name in tracked() if name.endswith(SOURCES) and "testdata" not in name]
    assert len(sources) > 300
    assert not [name for name in sources if "SPDX-License-Identifier: Apache-2.0" not in head(name)]


def head(name):
    return "\n".join(text_of(name).splitlines()[:3])


def test_nothing_of_this_machine_is_committed():
    """No path of the machine that a file was written on."""
    wrong = []
    for name in tracked():
        for number, line in enumerate((text_of(name) or "").splitlines(), 1):
            if re.search(r"(?<![\w.$/}])/(work|home/\w+|Users/\w+)/", line) and name != "tests/test_project_files.py":
                wrong.append(f"{name}:{number}: {line.strip()[:100]}")
    assert not wrong, "\n".join(wrong)
