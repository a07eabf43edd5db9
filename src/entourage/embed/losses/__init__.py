"""The Group Loss and baseline losses."""
