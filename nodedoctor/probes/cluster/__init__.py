"""Programs that ask about Ray and jobs that run on several nodes."""
