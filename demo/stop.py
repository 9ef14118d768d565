"""``make demo-stop``."""

from demo import instance

print("The demo is stopped." if instance.stop(instance.FOLDER) else "No demo runs in this checkout.")
