"""What to measure: the YAML model of a study, its validation, and the plan of blocks and cells.

The parts are imported by their own names (``tare.units``, ``.model``, ``.load``,
``.cells``, ``.plan``, ``.reference``), so that an importer of a unit does not load the whole model.
"""
