# SPDX-License-Identifier: Apache-2.0
"""The logger ``collage``: warnings, and at INFO what was done and found on the way.

Go's warnings come here (``collage.host.log``). Where nobody has set logging up, neither for this logger nor for all,
warnings are shown on the standard error as the command shows them, and the rest is not.
"""

import logging
import sys

logger = logging.getLogger("collage")


class _Otherwise(logging.Handler):
    """Shows warnings where no other handler would get them."""

    def emit(self, record: logging.LogRecord) -> None:
        at: logging.Logger | None = logger
        while at is not None:
            if any(handler is not self and not isinstance(handler, logging.NullHandler) for handler in at.handlers):
                return
            at = at.parent if at.propagate else None
        print(f"collage: {record.levelname.lower()}: {record.getMessage()}", file=sys.stderr)


if not logger.handlers:
    logger.addHandler(logging.NullHandler())
logger.addHandler(_Otherwise(logging.WARNING))


def said(level: str, text: str) -> None:
    """collage.host.log: a record at that level ("warning")."""
    logger.log(getattr(logging, str(level).upper(), logging.WARNING), "%s", text)
