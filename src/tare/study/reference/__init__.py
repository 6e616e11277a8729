"""The reference of the study file, made from its model: pages, keys and JSON Schema."""
