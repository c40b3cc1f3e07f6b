# SPDX-License-Identifier: Apache-2.0
"""The one place where the version stands: pyproject.toml, CMakeLists.txt and version.go read this file."""

__version__ = "0.1.0"
