"""A made-up protocol in a package of its own: the example of CONTRIBUTING.md's recipe. TiCDC has no such protocol."""
