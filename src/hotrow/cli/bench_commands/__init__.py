"""The commands of `hotrow bench`, one file each."""
