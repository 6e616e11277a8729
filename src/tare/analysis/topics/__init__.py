"""One module for each topic beyond effects: spikes, neighbours, jobs, proxies, counters."""
