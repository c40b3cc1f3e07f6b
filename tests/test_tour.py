# SPDX-License-Identifier: Apache-2.0
"""docs/tour.ipynb: its cells run one after the other, show something, and are kept without what they showed."""

import json
import re
import subprocess
import sys

import pytest
from conftest import TREE, environment

NOTEBOOK = TREE / "docs" / "tour.ipynb"

# Runs each cell as a notebook does: a last expression is shown, as HTML where the object has that.
RUN = """
import ast, json, sys
cells, scope = json.load(open(sys.argv[1]))["cells"], {}
shown = []
for number, cell in enumerate(cells):
    if cell["cell_type"] != "code":
        continue
    tree = ast.parse("".join(cell["source"]), f"cell {number}")
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, f"cell {number}", "exec"), scope)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), scope)
        if value is not None:
            shown.append(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
print(json.dumps(shown))
"""


def cells(kind):
    return [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == kind]


@pytest.mark.fast
def test_it_is_kept_without_outputs():
    for cell in cells("code"):
        assert cell["outputs"] == [] and cell["execution_count"] is None
        assert not re.search(r"^[%!]", "".join(cell["source"]), re.M), "only Python: the test runs it without IPython"
        assert max(map(len, "".join(cell["source"]).splitlines())) <= 120
    assert len(cells("markdown")) > 5


def test_it_runs(collage_library, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(NOTEBOOK)],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=tmp_path,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    *printed, last = done.stdout.splitlines()
    plan, scores = json.loads(last)
    assert "<" in plan and "conv2d" in plan and scores.startswith("array(")
    said = "\n".join(printed)
    assert "Execution time summary" in said and "dnnnl - unknown backend" in said
    assert (tmp_path / "tour.so").is_file()
