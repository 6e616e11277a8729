"""The commands."""


def main() -> None:
    """Run the command."""
