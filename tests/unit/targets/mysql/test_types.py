"""How cells are staged for MySQL."""

import numpy as np
import pyarrow as pa
import pytest

from ticdc_replay.targets.mysql.types import staged_cells


@pytest.mark.parametrize("type_name", ["float", "double"])
def test_a_float_of_32_bits_is_staged_as_the_number_that_it_is(type_name: str) -> None:
    """A column that became DOUBLE has rows from before it, whose number MySQL does not round to 0.1."""
    staged = staged_cells(pa.array([0.1, None, -1.5], pa.float32()), type_name).to_pylist()
    assert [None if text is None else float(text) for text in staged] == [float(np.float32(0.1)), None, -1.5]
