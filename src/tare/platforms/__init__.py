"""One file or folder per platform, and the contract that they are."""
