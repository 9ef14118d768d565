"""Where the versions of one row are, and what became of each: in changelogs, in quarantine, in the targets. Changes nothing."""
