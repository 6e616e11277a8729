"""What writers of extensions test with: the cases that every platform passes.

It needs pytest, which comes with the extra ``testing``: ``pip install 'hypertare[testing]'``.
"""

import pytest

# Before they are loaded, so that a case that fails shows the values in its assertion.
pytest.register_assert_rewrite("tare.testing.conformance", "tare.testing.missing_capabilities")
