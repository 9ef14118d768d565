"""What the entry points of the wheel name: the plugin and the provider."""
