"""Avro with a schema registry: ``framing`` of Confluent and Glue, ``binary`` by fastavro, ``forms`` of writer schemas."""
