"""What a rank's scheduler is made of: requests, admission, retraction, speculation, graph votes, and the two halves of a split engine."""
