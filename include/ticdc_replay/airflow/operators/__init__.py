"""The tasks of a replay, one operator a file. Each opens the pipeline, calls one stage and returns a small XCom."""
