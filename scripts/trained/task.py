# SPDX-License-Identifier: Apache-2.0
"""What a trained model is asked, and what the task's answer is."""

import dataclasses
import importlib.util
from collections.abc import Callable
from pathlib import Path


@dataclasses.dataclass
class Question:
    """One thing that was asked: what was shown, the right answer, and what the model's outputs say.

    ``score`` is the share that is right, where many answers are counted as one.
    """

    asked: str
    expected: str
    got: str
    score: float | None = None


@dataclasses.dataclass
class Trained:
    """A trained model: where it is and what it is for.

    ``ask`` gets the network, a function from {input: array} to the list of its outputs, and gives Questions.
    ``package`` is the distribution that ships the file; "" where it was trained here. ``learnt`` gives inputs like
    those that it learnt from, a list of {input: array}; None where nobody ships any.
    """

    name: str
    package: str
    file: Callable[[], Path]
    ask: Callable[[Callable], list]
    options: tuple = ()
    learnt: Callable[[], list] | None = None


def shipped(module, *parts):
    """The path of a file in an installed package, which is not imported."""
    spec = importlib.util.find_spec(module)
    if spec is None:
        raise FileNotFoundError(f"the package {module} is not installed; make trained installs it")
    path = Path(spec.submodule_search_locations[0]).joinpath(*parts)
    if not path.is_file():
        raise FileNotFoundError(f"the package {module} ships no {'/'.join(parts)}")
    return path
