"""What a job died of, who has to act and what helps: weighed and worded."""
