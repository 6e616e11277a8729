"""Tests for authors of extensions: the cases that every platform must pass.

This needs pytest, which comes with the extra ``testing``: ``pip install 'hypertare[testing]'``.
"""

import pytest

# This precedes the imports, so that a failed assertion shows its values.
pytest.register_assert_rewrite("tare.testing.conformance", "tare.testing.missing_capabilities")
