"""One study over many hosts at once: Dask deals its blocks out, and their events become one run."""
