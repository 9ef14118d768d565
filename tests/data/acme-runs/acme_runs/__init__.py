"""A page that lists the runs of a pipeline, made by the recipe for pages in CONTRIBUTING.md."""
