"""Where TiCDC sends a row: the topic of its table, and the partition of the row in it.

``table_filter`` is the syntax of matchers, ``topic_expression`` that of topic rules, ``rules`` puts them together into what a
changefeed's ``[sink] dispatchers`` mean, ``partitions`` computes the partition of a row. Values and pure functions only.
"""
