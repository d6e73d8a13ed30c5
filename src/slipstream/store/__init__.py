"""The store: one folder that holds everything an app keeps, as typed records that are checked when they are read."""
