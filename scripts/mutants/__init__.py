"""Do the tests notice a wrong program? ``python -m scripts.mutants`` changes it, and sees."""
