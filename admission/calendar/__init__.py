"""What is planned, by whom as far as the reader may know, and what sites are committed to."""
