"""Code that platforms on a Linux host share: networks, disks, schedulers, control groups."""
