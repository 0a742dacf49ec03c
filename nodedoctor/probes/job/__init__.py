"""What looks at the processes of a running job, and what a job's own Python loads to be looked at."""
