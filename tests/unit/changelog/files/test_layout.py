"""Where files lie: names of tables as parts of a path that other engines read back."""

from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st

from ticdc_replay.changelog.files.layout import data_folder, escape
from ticdc_replay.domain.tables import TableName


@given(st.text(min_size=1, max_size=64))
def test_any_name_is_one_part_of_a_path_and_can_be_told_back(name: str) -> None:
    part = escape(name)
    assert unquote(part) == name
    assert not {*part} & set("/\\:=?#*\"' \n\t{}[]^.")


def test_names_are_encoded_as_hive_does_it() -> None:
    assert data_folder(TableName("été", "a=b/c.d%"), "0") == "data/schema=été/table=a%3Db%2Fc%2Ed%25/version=0"
