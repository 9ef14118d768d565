"""Files of a changelog: their layout, writing and reading them, the index, and what identifies a row version in them."""
