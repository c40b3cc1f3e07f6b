# SPDX-License-Identifier: Apache-2.0
"""The one place where the version of the Python package stands."""

__version__ = "0.1.0"
