"""The model of a study file: typed parts, and what each may hold."""
