"""A bare machine that its owner boots from the live image; it dials back to be measured."""
