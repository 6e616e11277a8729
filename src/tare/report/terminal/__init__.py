"""Comparisons, histories and advice as tables in the terminal."""
