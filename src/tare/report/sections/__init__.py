"""The sections of the page, one module for each, and the protocol that they follow."""
