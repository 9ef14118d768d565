"""The query of the view of a history that has an interval of commitTs for each row version, in Spark SQL."""

from collections.abc import Mapping, Sequence

from ticdc_replay.domain.tso import LOGICAL_BITS
from ticdc_replay.targets.history.rows import DDL, OP
from ticdc_replay.targets.history.scd2 import OWN, columns_of
from ticdc_replay.targets.lake.dialect import listed, quoted


def query(history: str, types: Mapping[str, str], commit_ts: str, key: Sequence[str]) -> str:
    """The view's query over the table *history*, an SQL name, with the columns *types* and the *key*.

    A version ends with the next one of its key, or with the next DDL that empties the table. It is right for whatever
    windows are loaded, in any order: nothing is kept beside the history.
    """
    ts, op = quoted(commit_ts), quoted(OP)
    columns = [name for name in columns_of(types, commit_ts) if name not in OWN]
    newest_last = f"{ts}, CASE WHEN {op} = 'delete' THEN 0 ELSE 1 END"

    def time_of(tso: str) -> str:
        return f"timestamp_millis(shiftright({tso}, {LOGICAL_BITS}))"

    return (
        f"SELECT {listed(columns)}, valid_from, valid_to, {time_of('valid_from')} AS valid_from_time, "
        f"{time_of('valid_to')} AS valid_to_time, valid_to IS NULL AS is_current "
        f"FROM (SELECT v.*, v.{ts} AS valid_from, least(v._ticdc_replay_next, "
        f"array_min(filter(e.emptied, emptied_ts -> emptied_ts >= v.{ts}))) AS valid_to "
        f"FROM (SELECT *, lead({ts}) OVER (PARTITION BY {listed(key)} ORDER BY {newest_last}) AS _ticdc_replay_next "
        f"FROM {history} WHERE {quoted(DDL)} IS NULL) v "
        f"CROSS JOIN (SELECT collect_list({ts}) AS emptied FROM {history} WHERE {op} = 'empty') e) "
        f"WHERE {op} <> 'delete' AND (valid_to IS NULL OR valid_from < valid_to)"
    )
