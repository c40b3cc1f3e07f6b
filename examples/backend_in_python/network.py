# SPDX-License-Identifier: Apache-2.0
"""Writes the network of rows.py as Relay text, attention.relay."""

from pathlib import Path

from rows import attention

Path("attention.relay").write_text(attention().astext())
