"""A comparison of modes in virtual time, from a config file to tables and a picture: `hotrow simulate`."""
