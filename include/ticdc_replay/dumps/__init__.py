"""Files that Dumpling writes: names, metadata, CSV and SQL, and their rows as rows of a changelog.

What holds of the files, with the source of each fact, is in docs/seed.md.
"""
