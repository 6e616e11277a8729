"""A computer that is reached over SSH, by connections that may break and come back."""
