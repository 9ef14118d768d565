"""The base load of mirrors: from a dump to a changelog of one TSO, and from that into targets."""
