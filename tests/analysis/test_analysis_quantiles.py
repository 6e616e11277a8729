"""Quantiles that are NumPy's to the last digit, without what it loads for them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tare.analysis.statistics.quantiles import tail_quantiles


@pytest.mark.parametrize("size", [1, 2, 3, 30, 2000])
@pytest.mark.parametrize("tail", [1e-9, 0.005, 0.025, 0.25, 0.4, 0.5])
def test_both_ends_are_numpys_to_the_last_digit(size: int, tail: float) -> None:
    drawn = np.random.default_rng(size).standard_normal((5, size))
    for values in (drawn, np.round(drawn)):
        expected = np.quantile(values, [tail, 1 - tail], axis=1)
        assert np.array(tail_quantiles(values, tail)).tobytes() == expected.tobytes()


def test_no_masked_arrays_are_loaded_for_them() -> None:
    script = (
        "import sys, numpy as np\n"
        "from tare.analysis.statistics.quantiles import tail_quantiles\n"
        "tail_quantiles(np.arange(9.0), 0.1)\n"
        "sys.exit('numpy.ma' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
