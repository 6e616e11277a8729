"""One study on many hosts at once: Dask distributes its blocks; their events become one run."""
