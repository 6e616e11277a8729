"""One file per platform, and the protocol they implement."""
