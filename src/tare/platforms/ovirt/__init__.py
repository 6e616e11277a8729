"""oVirt and RHV: virtual machines created and removed over the engine's REST API."""
