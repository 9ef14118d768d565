"""Configuration, parsed once at the edge into typed values.

``pipeline.Pipeline`` is the YAML file as a user writes it, ``changefeed.Changefeed`` what the owner's sink-uri and TOML mean
for a reader, ``protocols.ProtocolTraits`` what is known of its protocol. ``load.load_pipeline`` reads both files and refuses what
can't work, ``json_schema`` writes the schema for editors.
Nothing here opens a connection, and no value here is a secret.
"""
