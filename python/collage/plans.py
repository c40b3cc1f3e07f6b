# SPDX-License-Identifier: Apache-2.0
"""What was decided about a network: a view of a plan file. Go made it and says what is in it."""

import html
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tvm

from . import errors, library, transform
from .transform import File


def write(path: Path, text: str) -> None:
    """Write a plan's file in one step: on an error nothing stands there that did not before."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


class Plan:
    """A plan, as ``collage plan`` and ``collage.plan`` make it; ``text`` is the JSON of its file.

    ``Plan("plan.json")`` reads one. Raises ValueError for what is none, OSError where the file cannot be read.
    """

    def __init__(self, plan: File | dict[str, Any]):
        self.text = transform.plan_text(plan)
        self._ask("table")  # whether it is readable

    def _ask(self, what: str, *arguments: str) -> str:
        library.load()
        function: Callable[..., Any] = tvm.get_global_func(f"collage.plan.{what}")
        return str(function(self.text, *arguments))

    @property
    def regions(self) -> list[dict[str, Any]]:
        """The regions as the file has them, in order: "backend", "candidates" with their nodes and costs, ..."""
        return list(json.loads(self.text)["regions"])

    @property
    def estimate(self) -> dict[str, Any]:
        """What the costs say about the whole network, as the file has it: "total_ms", "bound_ms", "gap_ms", "optimal"
        (whether the plan holds the proof), all in milliseconds; a sum of parts, no time of the whole.
        """
        return dict(json.loads(self.text)["estimate"])

    @property
    def finalists(self) -> list[dict[str, Any]]:
        """The whole networks that were run in turn, as the file has them, each with "name", "samples_ms" (milliseconds,
        sample by sample from the same rounds) and, for the one that was kept, "chosen"; or with "failure". Empty for a
        plan that was only decided (``collage.plan``).
        """
        return list(json.loads(self.text).get("finalists") or [])

    def verify(self) -> dict[str, float]:
        """Check the plan's proof: that its regions cover the network, and that its prices allow none that is cheaper.

        Gives "ms" (what it costs), "bound_ms" (what no placement of its candidates costs less than) and "gap_ms" (their
        difference), in milliseconds. Raises ValueError where the plan proves nothing, or its proof is wrong.
        """
        return dict(json.loads(self._ask("verify")))

    def table(self) -> str:
        """What goes where and what it takes (milliseconds), as ``collage explain --verbose`` shows it."""
        return self._ask("table")

    def explain(self, which: int | str) -> str:
        """Why an operator is where it is: a node's number, or what ``collage explain`` takes ("nn.conv2d").

        Raises ValueError where the plan has no such operator.
        """
        return self._ask("explain", f"%{which}" if isinstance(which, int) else which)

    def diff(self, other: "Plan") -> str:
        """What differs between this plan and another one."""
        return self._ask("diff", other.text)

    def to_html(self, folder: File) -> Path:
        """Write ``folder``/index.html, a page that a browser shows without a network; the folder is made.

        Returns the page's path. Raises RuntimeError where this build of Collage has no libraries that draw it.
        """
        page = self._ask("page")
        Path(folder).mkdir(exist_ok=True)
        write(Path(folder) / "index.html", page)
        return Path(folder) / "index.html"

    def to_svg(self, path: File) -> Path:
        """Write a picture of what runs where (``--svg`` of the command) to ``path``, which must end in .svg.

        Returns the path. Raises ValueError for another ending, OSError where it cannot be written.
        """
        return self._picture(path, ".svg")

    def to_png(self, path: File) -> Path:
        """Write the same picture to ``path``, which must end in .png."""
        return self._picture(path, ".png")

    def _picture(self, path: File, ending: str) -> Path:
        path = Path(path)
        if path.suffix != ending:
            raise errors.InputError(f"the picture {path} must end in {ending}")
        self._ask("picture", str(path))
        return path

    def save(self, path: File) -> None:
        """Write the plan to a file, which ``Plan``, ``collage.replay`` and the command line read."""
        write(Path(path), self.text)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"<collage.Plan: {len(self.regions)} regions>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.table())}</pre>"
