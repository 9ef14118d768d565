"""The YAML files of pipelines and stores, parsed once into typed values, none of them secret.

``pipeline.Pipeline`` and ``store.Store`` are the files; ``load`` and ``load_store`` read and check them.
``target_kinds`` finds the kinds of target, ``json_schema`` writes the schemas for editors.
"""
