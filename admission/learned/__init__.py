"""Statistics of jobs that ran: their draw, and how long they take."""
