"""A run's events and series read as data: observations, frames, exports, verification."""
