"""A fuzzer that knows how messages are built: it changes bytes, structure and values of real ones, and judges what comes out.

    units        a message as its documents, decompressed and out of their frames, and back
    documents    JSON and Avro as trees that keep what a parser would hide (duplicate members, numbers as written)
    mutations    the changes, and what each of them allows the codec to say
    oracle       what a codec may answer, and the checks of it
    poison       messages of any size, made to cost more than their bytes
    campaign     many mutations of many captures, counted

``python -m tests.fuzz --messages 1000000`` is the long run; ``tests/unit/codecs/test_fuzz.py`` a short one.
"""
