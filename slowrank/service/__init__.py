"""`slowrank serve`: engines are read, judged and shown for as long as the process lives."""
