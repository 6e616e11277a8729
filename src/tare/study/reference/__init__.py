"""The reference of the study file, generated from its model: pages, keys and JSON Schema."""
