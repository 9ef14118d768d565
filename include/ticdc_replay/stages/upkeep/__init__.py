"""What people do between windows: prune changelogs, raise the floor of a mirror."""
