"""What was set aside: looking at it, accepting it as lost, decoding and loading it again."""
