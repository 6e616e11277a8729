"""Virtual machines of ESXi and vCenter, created and removed over the vSphere API."""
