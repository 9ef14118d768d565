"""Row versions that repeat: which copy stays, the last version of each row, which changelogs cover a window."""
