# SPDX-License-Identifier: Apache-2.0
"""The JSON Schemas of docs/schemas, and documents held against them."""

import datetime
import functools
import json
import re

from conftest import TREE
from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

FOLDER = TREE / "docs" / "schemas"

_formats = FormatChecker([])


# RFC 3339, with its zone; Python 3.10 reads neither Z nor Go's nine digits.
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")


@_formats.checks("date-time", raises=ValueError)
def _is_time(text):
    if not isinstance(text, str):
        return True
    found = _TIME.fullmatch(text)
    return found is not None and datetime.datetime.fromisoformat(found[1]) is not None


def names():
    """The paths of all schemas below docs/schemas, without their suffix."""
    return sorted(str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.rglob("*.json"))


def read(name):
    """A schema as it stands in its file."""
    return json.loads((FOLDER / f"{name}.json").read_text())


@functools.cache
def _registry():
    return Registry().with_resources((f"{name}.json", Resource.from_contents(read(name))) for name in names())


def _no_number(text):
    raise AssertionError(f"{text} is no JSON")


def parsed(text):
    """One JSON document and nothing else; NaN and infinities are not JSON."""
    return json.loads(text, parse_constant=_no_number)


def faults(name, document):
    """What a schema says against a document."""
    validator = Draft202012Validator(read(name), registry=_registry(), format_checker=_formats)
    return [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(document)]


def hold(name, document):
    """The document, after the schema was found to fit it."""
    assert faults(name, document) == []
    return document
