"""The timeline of a job: its events, put in relation to each other."""
