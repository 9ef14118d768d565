"""Deletion plans: made, decided, executed, audited, undone."""
