"""What a person tries the product with: the embedded stack, the sample changefeed and the demo itself.

Nothing of the library may import this package.
"""
