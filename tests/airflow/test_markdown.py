"""Names from outside in the Markdown that Airflow shows: neither a link nor an image, and no markup of theirs counts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from ticdc_replay.airflow import approval
from ticdc_replay.airflow.markdown import cell, code, plain
from ticdc_replay.reconcile.delete.contents import PlannedGroup, PlannedObject
from ticdc_replay.state.deletion_plans import DeletionPlanRecord
from ticdc_replay.store_stages.deletion import PlanDescription

HOSTILE = "`a` ![x](http://e/p.png) [y](http://e) <img src=http://e> http://e/z www.e.com | **b** \n# h\x1b[2J"
READER = MarkdownIt("commonmark", {"html": True, "linkify": False}).enable("table")
MARKUP = st.lists(st.sampled_from([*"`|\\[]()!<>*_#~\n :/.a0&;-", "http://", "www.", "![", "](", "``", "&lt;"])).map(
    "".join
)


def kinds(markdown):
    found = set()
    for token in READER.parse(markdown):
        found |= {token.type} | {child.type for child in token.children or ()}
    return found


def codes(markdown):
    return [
        child.content
        for token in READER.parse(markdown)
        for child in token.children or ()
        if child.type == "code_inline"
    ]


@given(MARKUP)
def test_a_name_is_code_and_nothing_else(name):
    assert kinds(f"a {code(name)} b") == {"paragraph_open", "inline", "text", "code_inline", "paragraph_close"}
    table = f"| a | b |\n|---|---|\n| {cell(name)} | c |"
    assert READER.render(table).count("<td>") == 2
    if "\\|" not in name:
        assert len(codes(table)) == 1


def test_a_backslash_does_not_undo_the_escape_of_a_bar():
    # Airflow's reader splits a row at a bar unless an odd number of backslashes precedes it.
    for name in ("a\\|b", "a\\\\|b", "![x](http://e)\\|`b`"):
        shown = cell(name)
        assert all(len(run) % 2 == 1 for run in re.findall(r"(\\*)\|", shown)), shown
        table = f"| a | b |\n|---|---|\n| {shown} | c |"
        assert not {"link", "link_open", "image", "code_inline"} & kinds(table)
        assert READER.render(table).count("<td>") == 2


@given(MARKUP)
def test_a_sentence_is_text_and_nothing_else(sentence):
    assert kinds(f"a {plain(sentence)} b") <= {"paragraph_open", "inline", "text", "text_special", "paragraph_close"}
    assert "://" not in READER.render(plain(sentence))


def described(**names):
    record = DeletionPlanRecord(store="s", plan_hash="1" * 64, name="n", made_at_ms=1, due_at_ms=1, objects=1, bytes=1)
    return PlanDescription(
        store="s",
        uri="s3://b/[p](http://e)",
        record=record,
        reconciliation_id="r",
        due_at_ms=1,
        groups=(PlannedGroup("orphan", HOSTILE, 1, 1, 1, 1),),
        first=(PlannedObject(HOSTILE, 1, 1, "orphan", "reason", HOSTILE),),
        objections=(HOSTILE,),
    )


def test_the_approval_of_a_plan_shows_names_as_they_are():
    body = approval.body(described())
    assert not kinds(body) & {"image", "link_open", "html_inline", "html_block", "heading_open"}
    assert "\x1b" not in body
    shown = HOSTILE.replace("\n", "\\n").replace("\x1b", "\\x1b")
    assert codes(body).count(shown) == 2
    assert READER.render(body).count("<td") == 5


@pytest.mark.parametrize("name", ["", " ", "`", "``", "a`", "\\"])
def test_odd_names_are_code_too(name):
    assert len(codes(code(name))) == 1
