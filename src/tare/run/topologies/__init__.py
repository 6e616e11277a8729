"""How the machines of a cell work together: alone, in pairs, through a proxy, as a cluster."""
