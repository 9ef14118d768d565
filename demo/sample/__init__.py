"""The sample changefeed: four hours of a real TiCDC Open Protocol stream with claim-check objects, and its right answer.

``data/`` is a capture (see ``ticdc_replay.captures``) with the expected outcome beside it; ``build`` made it, ``publish`` brings
it into Kafka and S3. Nothing here uses the library's decoder, so that the two can be compared.
"""
