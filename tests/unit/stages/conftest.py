"""The pipeline that these tests share."""

from tests.support.file_pipelines import context, make_context

__all__ = ["context", "make_context"]
