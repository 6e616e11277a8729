"""Studies: their YAML model, its validation, and the plan of blocks and cells.

Import each part by its own name (``tare.units``, ``.model``, ``.load``, ``.cells``, ``.plan``,
``.reference``), so that using one part does not load the whole model.
"""
