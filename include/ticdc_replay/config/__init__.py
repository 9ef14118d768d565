"""The YAML files of pipelines and stores, parsed once into typed values.

``pipeline.Pipeline`` and ``store.Store`` are the files as a user writes them. ``load`` and ``load_store`` read them and refuse
what can't work. ``target_kinds`` finds the kinds of target, ``json_schema`` writes the schemas for editors. No value here is a
secret.
"""
