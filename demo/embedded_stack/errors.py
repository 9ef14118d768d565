"""What can go wrong with the embedded stack."""


class StackError(Exception):
    """A server can't be had, does not start or does not stop; the message says why and what to do."""


class MissingToolError(StackError):
    """A program that is needed is not installed; the message names it and the remedy."""
