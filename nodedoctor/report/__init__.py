"""Views of a report that leave the process: JSON, text, HTML, JUnit."""
