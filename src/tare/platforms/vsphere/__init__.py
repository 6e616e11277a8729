"""Virtual machines of ESXi and vCenter, made over the vSphere API and removed."""
