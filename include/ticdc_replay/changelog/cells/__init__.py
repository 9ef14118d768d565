"""Values of the wire as Arrow arrays: the type of each column, and whole columns of cells at a time."""
