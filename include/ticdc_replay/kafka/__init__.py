"""Kafka as this library uses it: no consumer groups, no commits, only pinned ranges and look-ups.

``settings`` turns a connection into client configuration, ``failures`` says what librdkafka's errors mean, ``reader`` reads one
offset range exactly, ``offsets`` looks up topics, bounds and offsets by time. What the messages say is the codecs' business.
"""
