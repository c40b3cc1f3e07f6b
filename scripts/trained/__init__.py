# SPDX-License-Identifier: Apache-2.0
"""Trained models that packages ship, compiled and asked what they were trained for."""
