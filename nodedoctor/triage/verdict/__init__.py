"""What a job died of, whose move it is and what helps: weighed, worded and written down."""
