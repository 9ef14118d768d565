"""Which texts mean the same value, and in which forms types are compared."""

import pytest

from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.verify.forms import Form, canonical_key, forms_of, is_calendar_day, same_value


@pytest.mark.parametrize(
    ("form", "first", "second", "same"),
    [
        (Form.JSON, '{"a": 1, "b": [1, 2]}', '{"b":[1.0,2],"a":1}', True),
        (Form.JSON, '{"a": 1}', '{"a": true}', False),
        (Form.JSON, "[0]", "[false]", False),
        (Form.JSON, "1", '"1"', False),
        (Form.JSON, "null", "NaN", False),
        (Form.JSON, "18446744073709551615", "18446744073709551614", False),
        (Form.JSON, '"\\u00e9"', '"é"', True),
        (Form.FLOAT, "1e22", "10000000000000000000000", True),
        (Form.FLOAT, "-0", "0", True),
        (Form.FLOAT, "0.1", "0.10000000000000002", False),
        (Form.TEXT, "a", "a ", False),
        (Form.INTEGER, "1", None, False),
        (Form.JSON, None, None, True),
    ],
)
def test_values_are_compared_where_texts_differ(form: Form, first: str | None, second: str | None, same: bool) -> None:
    assert same_value(form, first, second) is same
    assert same_value(form, second, first) is same


def test_keys_of_floats_are_equal_however_they_are_printed() -> None:
    forms = [Form.FLOAT, Form.TEXT]
    assert canonical_key(["1e+22", "1e+22"], forms) == canonical_key(["10000000000000000000000", "1e+22"], forms)
    assert canonical_key(["-0", ""], forms) == canonical_key(["0", ""], forms)


@pytest.mark.parametrize(
    ("text", "possible"),
    [("0000-00-00", False), ("2026-02-31 00:00:00", False), ("2026-00-10", False), ("2024-02-29 23:59:59.5", True)],
)
def test_days_that_no_calendar_has(text: str, possible: bool) -> None:
    assert is_calendar_day(Form.MOMENT, text) is possible


def test_every_type_has_a_form() -> None:
    from typing import get_args

    from ticdc_replay.domain.column_types import BaseType

    assert all(forms_of(ColumnType(base)) for base in get_args(BaseType))
