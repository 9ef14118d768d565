"""After all splits: repeated copies leave the files, and the index with its report makes the changelog complete."""
