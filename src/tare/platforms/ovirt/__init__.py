"""oVirt and RHV: machines made and removed over the engine's REST API."""
