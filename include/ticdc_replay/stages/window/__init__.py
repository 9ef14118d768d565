"""Planning and pinning a window, and the job that decodes it."""
